{{/* The number of pods of a Deployment of Envoys, without an autoscaler: its values. */}}
{{- define "gatewright.envoyReplicas" -}}
{{- if and (not .autoscaling.enabled) (not (kindIs "invalid" .replicas)) }}
replicas: {{ .replicas }}
{{- end }}
{{- end -}}

{{/* What scales a Deployment of Envoys, and how many of them may end at once: list of the root, the values, their path and the
component's name. */}}
{{- define "gatewright.envoyScaling" -}}
{{- $root := index . 0 -}}
{{- $envoy := index . 1 -}}
{{- $path := index . 2 -}}
{{- $component := index . 3 -}}
{{- $scaling := $envoy.autoscaling -}}
{{- if $scaling.enabled }}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) }}
{{- fail (printf "%s.autoscaling: minReplicas (%v) is maxReplicas (%v) at most" $path $scaling.minReplicas $scaling.maxReplicas) }}
{{- end }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: gatewright-{{ $component }}
  namespace: {{ $root.Release.Namespace }}
{{- include "gatewright.common" $root }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: gatewright-{{ $component }}}
  minReplicas: {{ $scaling.minReplicas }}
  maxReplicas: {{ $scaling.maxReplicas }}
  metrics:
  {{- with $scaling.targetCPUUtilizationPercentage }}
  - type: ContainerResource
    containerResource: {name: cpu, container: envoy, target: {type: Utilization, averageUtilization: {{ . }}}}
  {{- end }}
  {{- with $scaling.metrics }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $scaling.behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- if $envoy.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: gatewright-{{ $component }}
  namespace: {{ $root.Release.Namespace }}
{{- include "gatewright.common" $root }}
spec:
  {{- $least := ternary $scaling.minReplicas $envoy.replicas $scaling.enabled }}
  {{- include "gatewright.disruptions" (list $envoy.podDisruptionBudget $least (printf "%s.podDisruptionBudget" $path)) | nindent 2 }}
  selector:
    matchLabels: {{ include "gatewright.selector" $component }}
{{- end }}
{{- end -}}

{{/* The pod template of the Envoys of a fleet: list of the root, the values of those Envoys, and the component's name, which after
gatewright- is that of their ServiceAccount and of the Secret with the certificate of their fleet. Envoys of Gateways' own are made
of it as well, by the controller, with a ServiceAccount for each Gateway. */}}
{{- define "gatewright.envoyPod" -}}
{{- $root := index . 0 -}}
{{- $envoy := index . 1 -}}
{{- $component := index . 2 -}}
{{- $serve := int $envoy.drain.serveSeconds -}}
{{- $drain := int $envoy.drain.drainSeconds -}}
{{- $own := or (ne $root.Values.envoy.credentials "Secret") (eq $component "envoy-isolated") -}}
{{- $tls := ternary "/run/envoy/tls" "/tls" $own -}}
{{- $statistics := $root.Values.monitoring.envoys -}}
{{- $credentials := include "gatewright.statistics-credentials" $root | fromYaml -}}
metadata:
  labels:
    {{- include "gatewright.labels" (list $root $component $envoy.podLabels) | nindent 4 }}
  {{- with $envoy.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: gatewright-{{ $component }}
  automountServiceAccountToken: false
  {{- with include "gatewright.imagePullSecrets" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "gatewright.scheduling" (list $root $envoy) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  # {{ $serve }} s in which Envoy continues to serve while Services and load balancers remove it, {{ $drain }} s for connections to end, and
  # a reserve: see the container drain.
  terminationGracePeriodSeconds: {{ add $serve $drain 20 }}
  {{- include "gatewright.securityContext" $envoy.podSecurityContext | nindent 2 }}
  initContainers:
  {{- if $own }}
  # Gets the first certificate of this pod, and the zone of its node, before Envoy starts.
  - name: first-identity
    {{- include "gatewright.image" (list $root $root.Values.image $root.Chart.AppVersion) | nindent 4 }}
    args:
    - envoy-identity
    - --once
    {{- include "gatewright.envoyIdentity" $root | nindent 4 }}
    volumeMounts:
    - {name: run, mountPath: /run/envoy}
    - {name: identity, mountPath: /identity, readOnly: true}
    resources:
      {{- toYaml $envoy.initResources | nindent 6 }}
    {{- include "gatewright.securityContext" $envoy.securityContext | nindent 4 }}
  {{- end }}
  - name: bootstrap
    {{- include "gatewright.image" (list $root $root.Values.image $root.Chart.AppVersion) | nindent 4 }}
    args:
    - bootstrap
    - --node=$(POD_NAME)
    {{- if not $own }}
    - --zone=$(ZONE)
    {{- end }}
    - --xds=gatewright-xds.{{ $root.Release.Namespace }}.svc:18000
    - --tls-dir={{ $tls }}
    - --envoy-admin=/run/envoy/admin.sock
    - --memory-limit=$(MEMORY_LIMIT)
    {{- if $statistics.enabled }}
    - --stats={{ ternary (printf "[%s]" $statistics.address) $statistics.address (contains ":" $statistics.address) }}:{{ $statistics.port }}
    {{- if $credentials }}
    - --stats-credentials=/statistics
    {{- if $statistics.services }}
    - --stats-services
    {{- end }}
    {{- end }}
    {{- end }}
    - --file=/run/envoy/bootstrap.json
    env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    {{- if not $own }}
    # The label of the node, which the API server copies to the pod from Kubernetes 1.35 on; empty without it.
    - name: ZONE
      valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
    {{- end }}
    - name: MEMORY_LIMIT
      valueFrom: {resourceFieldRef: {containerName: envoy, resource: limits.memory}}
    volumeMounts:
    - {name: run, mountPath: /run/envoy}
    {{- if $credentials }}
    - {name: statistics, mountPath: /statistics, readOnly: true}
    {{- end }}
    resources:
      {{- toYaml $envoy.initResources | nindent 6 }}
    {{- include "gatewright.securityContext" $envoy.securityContext | nindent 4 }}
  containers:
  - name: envoy
    {{- include "gatewright.image" (list $root $envoy.image "") | nindent 4 }}
    {{- $arguments := list "--config-path" "/run/envoy/bootstrap.json" "--use-dynamic-base-id" "--component-log-level" "oauth2:off" "--file-flush-interval-msec" "1000" "--drain-time-s" (max 1 (sub $drain 5) | toString) }}
    args: {{ concat $arguments ($envoy.extraArgs | default list) | toJson }}
    {{- if or $envoy.ports $statistics.enabled }}
    ports:
    {{- range $envoy.ports }}
    - {name: {{ .name }}, containerPort: {{ .port }}{{ with .protocol }}, protocol: {{ . }}{{ end }}{{ if $envoy.hostPorts }}, hostPort: {{ .port }}{{ end }}}
    {{- end }}
    {{- if $statistics.enabled }}
    - {name: statistics, containerPort: {{ $statistics.port }}}
    {{- end }}
    {{- end }}
    # Delays SIGTERM, which ends Envoy at once; the container drain ends Envoy before.
    lifecycle:
      preStop:
        sleep: {seconds: {{ add $serve $drain 5 }}}
    volumeMounts:
    - {name: run, mountPath: /run/envoy}
    {{- if not $own }}
    - {name: tls, mountPath: /tls, readOnly: true}
    {{- end }}
    resources:
      {{- toYaml ($envoy.resources | default dict) | nindent 6 }}
    {{- include "gatewright.securityContext" $envoy.securityContext | nindent 4 }}
  - name: drain
    {{- include "gatewright.image" (list $root $root.Values.image $root.Chart.AppVersion) | nindent 4 }}
    args: [drain, --envoy-admin=/run/envoy/admin.sock, --serve={{ $serve }}, --drain={{ $drain }}]
    # For `kubectl exec`: gatewright envoy stats.
    env:
    - {name: GATEWRIGHT_ENVOY_ADMIN, value: /run/envoy/admin.sock}
    # The pod is ready from Envoy's first configuration until it drains. The probe asks over Envoy's admin socket: clients
    # of the pod could exhaust a port for probes.
    readinessProbe:
      exec: {command: [gatewright, ready, --envoy-admin=/run/envoy/admin.sock]}
      periodSeconds: 3
      timeoutSeconds: 3
      failureThreshold: 2
    volumeMounts:
    - {name: run, mountPath: /run/envoy}
    resources:
      requests: {cpu: 1m, memory: 16Mi}
      limits: {memory: 64Mi}
    {{- include "gatewright.securityContext" $envoy.securityContext | nindent 4 }}
  {{- if $own }}
  # Renews the certificate.
  - name: identity
    {{- include "gatewright.image" (list $root $root.Values.image $root.Chart.AppVersion) | nindent 4 }}
    args:
    - envoy-identity
    {{- include "gatewright.envoyIdentity" $root | nindent 4 }}
    volumeMounts:
    - {name: run, mountPath: /run/envoy}
    - {name: identity, mountPath: /identity, readOnly: true}
    resources:
      requests: {cpu: 1m, memory: 16Mi}
      limits: {memory: 64Mi}
    {{- include "gatewright.securityContext" $envoy.securityContext | nindent 4 }}
  {{- end }}
  volumes:
  - name: run
    emptyDir: {medium: Memory, sizeLimit: 16Mi}
  {{- with $credentials }}
  # The reader of statistics; Envoy itself gets a digest of the password.
  - name: statistics
    secret:
      secretName: {{ .secret }}
      items:
      - {key: {{ .username }}, path: username}
      - {key: {{ .password }}, path: password}
  {{- end }}
  {{- if $own }}
  # The token that authenticates this pod to the controller, and nowhere else, and the CA certificates that verify the controller.
  - name: identity
    projected:
      sources:
      - serviceAccountToken: {audience: gatewright-xds, expirationSeconds: 3600, path: token}
      - configMap:
          name: gatewright-xds-roots
          items:
          - {key: ca.crt, path: ca.crt}
  {{- else }}
  - name: tls
    secret: {secretName: gatewright-{{ $component }}}
  {{- end }}
{{- end -}}

{{/* Arguments of a container that gets the certificate of its pod. */}}
{{- define "gatewright.envoyIdentity" -}}
- --controller=gatewright-xds.{{ .Release.Namespace }}.svc:18001
- --token=/identity/token
- --roots=/identity/ca.crt
- --dir=/run/envoy/tls
{{- end -}}

{{/* "true" where fleet Dedicated has Envoys of its own: where that is said, else where a class of the chart is of that fleet. */}}
{{- define "gatewright.dedicated" -}}
{{- $enabled := .Values.envoy.dedicated.enabled -}}
{{- if kindIs "invalid" $enabled -}}
{{- range .Values.gatewayClasses -}}
{{- if . -}}
{{- if eq ((.parameters | default dict).fleet | default "") "Dedicated" -}}
{{- $enabled = true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $enabled .Values.envoy.enabled -}}true{{- end -}}
{{- end -}}

{{/* The Secret with name and password of the reader of Envoys' statistics, and the keys; nothing if everybody reads those of Envoys
as a whole. The Secret of the chart has the token of an account without rights, and the namespace as the name. */}}
{{- define "gatewright.statistics-credentials" -}}
{{- with .Values.monitoring.envoys -}}
{{- if and .enabled .traffic -}}
{{- if .credentialsSecret -}}
{secret: {{ .credentialsSecret }}, username: username, password: password}
{{- else -}}
{secret: gatewright-statistics, username: namespace, password: token}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Who reaches the statistics of Envoys: an entry of `ingress` of a NetworkPolicy. */}}
{{- define "gatewright.statisticsIngress" -}}
{{- if .Values.monitoring.envoys.enabled -}}
- ports:
  - {port: {{ .Values.monitoring.envoys.port }}}
  {{- with .Values.networkPolicy.probesFrom }}
  from:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Ports of Gateways with a Service of their own, of every fleet: entries of `ports` of a NetworkPolicy. */}}
{{- define "gatewright.internalPorts" -}}
- {port: 20000, endPort: 29999}
- {port: 20000, endPort: 29999, protocol: UDP}
{{- end -}}

{{/* Whom Envoys reach: egress of a NetworkPolicy. */}}
{{- define "gatewright.envoyEgress" -}}
- to:
  - podSelector:
      matchLabels: {{ include "gatewright.selector" "controller" }}
  ports:
  - {port: xds}
  {{- if include "gatewright.identity-port" . }}
  - {port: identity}
  {{- end }}
- ports:
  - {port: 53, protocol: UDP}
  - {port: 53, protocol: TCP}
- to:
  - namespaceSelector: {}
{{- with .Values.networkPolicy.envoys.egress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
