{{/* Labels that select the pods of a component, and are on everything that belongs to it. */}}
{{- define "gatewright.selector" -}}
{app.kubernetes.io/name: gatewright, app.kubernetes.io/component: {{ . }}}
{{- end -}}

{{/* metadata.labels of an object of a component: list of the root, the component, and further labels. Those that select pods come
before further ones, and these before commonLabels: a key stands there once. */}}
{{- define "gatewright.labels" -}}
{{- $own := dict "app.kubernetes.io/name" "gatewright" "app.kubernetes.io/component" (index . 1) -}}
{{- $more := dict -}}
{{- if gt (len .) 2 -}}
{{- $more = index . 2 | default dict -}}
{{- end -}}
{{ merge $own $more ((index . 0).Values.commonLabels | default dict) | toYaml }}
{{- end -}}

{{/* labels of an object that belongs to no component; nothing at all without commonLabels. */}}
{{- define "gatewright.common" -}}
{{- with .Values.commonLabels }}
  labels:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* labels and annotations of an object that an upgrade needs before all others, and no longer after it: list of the root and its
weight. */}}
{{- define "gatewright.hook" -}}
labels:
  {{- include "gatewright.labels" (list (index . 0) "crds") | nindent 2 }}
annotations:
  helm.sh/hook: pre-upgrade
  helm.sh/hook-weight: {{ index . 1 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* labels of a ClusterRole for people: list of the root, and the roles of Kubernetes that get its rules. */}}
{{- define "gatewright.aggregated" -}}
{{- $labels := (index . 0).Values.commonLabels | default dict | deepCopy -}}
{{- range rest . -}}
{{- $_ := set $labels (printf "rbac.authorization.k8s.io/aggregate-to-%s" .) "true" -}}
{{- end }}  labels:
    {{- toYaml $labels | nindent 4 }}
{{- end -}}

{{/* image and imagePullPolicy of a container: list of the root, an image of the values, and the tag to use where it has none. With a
digest it needs no tag. The registry of global replaces that of the repository, which is its first part if that has a dot or a colon
or is localhost; it has our image under its name even if the values have no repository. */}}
{{- define "gatewright.image" -}}
{{- $image := index . 1 -}}
{{- $registry := ((index . 0).Values.global | default dict).imageRegistry -}}
{{- $repository := $image.repository | default (ternary "" "gatewright" (empty $registry)) -}}
{{- if not $repository -}}
{{- fail "image.repository: no registry has the image of a checkout. Build it by `make image`, push it, and set image.repository to its name; set image.repository=gatewright where the nodes have it already. The chart of a release has its repository" -}}
{{- end -}}
{{- with $registry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") -}}
{{- end -}}
{{- $tag := $image.tag | default (index . 2) -}}
{{- if not (or $tag $image.digest) -}}
{{- fail (printf "the image %s has neither tag nor digest: set envoy.image.tag or envoy.image.digest (or those of envoy.dedicated or isolated)" $repository) -}}
{{- end -}}
image: {{ $repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- with $image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{/* imagePullSecrets of a pod: those of the chart, and those of global, which may be names. */}}
{{- define "gatewright.imagePullSecrets" -}}
{{- $all := .Values.imagePullSecrets | default list -}}
{{- range (.Values.global | default dict).imagePullSecrets -}}
{{- $all = append $all (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with $all | uniq -}}
imagePullSecrets:
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{/* Refuses keys of global that nothing reads. Below another chart they may be those of its other parts. */}}
{{- define "gatewright.global" -}}
{{- if .Chart.IsRoot -}}
{{- range $name, $_ := omit (.Values.global | default dict) "imageRegistry" "imagePullSecrets" -}}
{{- fail (printf "global.%s: nothing reads it: of global the chart has imageRegistry and imagePullSecrets" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* securityContext of a pod or container, if the values have one. */}}
{{- define "gatewright.securityContext" -}}
{{- with . -}}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* annotations of a ServiceAccount; nothing at all without. */}}
{{- define "gatewright.accountAnnotations" -}}
{{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* The configuration of the controller: that of the values, with what depends on other values. Envoys listen on both families
where their Service has both. */}}
{{- define "gatewright.configuration" -}}
{{- $given := deepCopy .Values.configuration -}}
{{- $envoys := dict -}}
{{- if kindIs "invalid" ($given.envoys | default dict).bind -}}
{{- $bind := list "0.0.0.0" -}}
{{- if has .Values.envoy.service.ipFamilyPolicy (list "PreferDualStack" "RequireDualStack") -}}
{{- $bind = append $bind "::" -}}
{{- end -}}
{{- $_ := set $envoys "bind" $bind -}}
{{- end -}}
{{- if include "gatewright.dedicated" . -}}
{{- $_ := set $envoys "dedicatedService" "gatewright-envoy-dedicated" -}}
{{- end -}}
{{- if .Values.isolated.enabled -}}
{{- $_ := set $envoys "isolatedPodTemplate" "gatewright-envoy-isolated" -}}
{{- end -}}
{{- if include "gatewright.identity-port" . -}}
{{- $_ := set $envoys "credentials" (eq .Values.envoy.credentials "Secret" | ternary "Both" .Values.envoy.credentials) -}}
{{- end -}}
{{- if and .Values.monitoring.envoys.enabled .Values.monitoring.envoys.traffic -}}
{{- $_ := set $envoys "trafficMetrics" "Namespaces" -}}
{{- end -}}
{{- $own := dict "envoys" $envoys "issuersFor" "Nobody" -}}
{{- with .Values.controller.namespaces -}}
{{- $_ := set $own "namespaces" . -}}
{{- end -}}
{{- if .Values.metrics.authorization -}}
{{- $_ := set $own "metrics" (dict "access" "Authorized") -}}
{{- end -}}
apiVersion: config.gatewright.io/v1alpha1
kind: Configuration
{{ toYaml (merge $given $own) }}
{{- end -}}

{{/* How much of a Deployment may be away, minAvailable where it is set, else maxUnavailable: list of the budget, the least number of
its pods (null where that is not known) and the path of the value. */}}
{{- define "gatewright.disruptions" -}}
{{- $budget := index . 0 -}}
{{- $least := index . 1 -}}
{{- $path := index . 2 -}}
{{- if kindIs "invalid" $budget.minAvailable -}}
{{- if has (toString $budget.maxUnavailable) (list "0" "0%") -}}
{{- fail (printf "%s.maxUnavailable: 0 lets no node be drained: set it to 1 or more" $path) -}}
{{- end -}}
maxUnavailable: {{ $budget.maxUnavailable }}
{{- else -}}
{{- if or (eq (toString $budget.minAvailable) "100%") (and (not (kindIs "invalid" $least)) (not (kindIs "string" $budget.minAvailable)) (ge (int $budget.minAvailable) (int $least))) -}}
{{- fail (printf "%s.minAvailable: %v of %v pods lets no node be drained: set it lower, or have more pods" $path $budget.minAvailable $least) -}}
{{- end -}}
minAvailable: {{ $budget.minAvailable }}
{{- end }}
# Pods that are not ready do not block the drain of a node.
unhealthyPodEvictionPolicy: AlwaysAllow
{{- end -}}

{{/* Where pods are scheduled: list of the root and the component's values. */}}
{{- define "gatewright.scheduling" -}}
{{- $root := index . 0 -}}
{{- with index . 1 }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName | default (ternary $root.Values.priorityClass.name "" $root.Values.priorityClass.create) }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* "true" where the controller may write certificates into Secrets of all namespaces. */}}
{{- define "gatewright.writes-certificates" -}}
{{- if or .Values.certificates.rbac (has (.Values.configuration.tenancy | default dict).certificates (list "Own" "InternalCa")) }}true{{ end }}
{{- end -}}

{{/* "true" where pods of Envoys have certificates of their own. */}}
{{- define "gatewright.pod-identities" -}}
{{- if and .Values.envoy.enabled (ne .Values.envoy.credentials "Secret") }}true{{ end }}
{{- end -}}

{{/* "true" where pods of Envoys get certificates of their own from the controller: all of them, or those of Gateways' own. */}}
{{- define "gatewright.identity-port" -}}
{{- if or (include "gatewright.pod-identities" .) .Values.isolated.enabled }}true{{ end }}
{{- end -}}

{{/* "true" where the chart makes the token that Prometheus reads metrics with. */}}
{{- define "gatewright.metrics-token" -}}
{{- $monitoring := .Values.monitoring -}}
{{- if and .Values.metrics.authorization (not $monitoring.tokenSecret.name) (or $monitoring.podMonitor.enabled $monitoring.serviceMonitor.enabled) }}true{{ end }}
{{- end -}}

{{/* How Prometheus reads metrics, as fields of an endpoint of a PodMonitor or ServiceMonitor: by what metrics.* says. */}}
{{- define "gatewright.metrics-endpoint" -}}
{{- $monitoring := .Values.monitoring -}}
port: probes
path: /metrics
{{- with .Values.metrics.tlsSecretName }}
scheme: https
tlsConfig:
  {{- if $monitoring.tlsConfig }}
  {{- toYaml $monitoring.tlsConfig | nindent 2 }}
  {{- else }}
  ca: {secret: {name: {{ . }}, key: ca.crt}}
  serverName: gatewright-metrics.{{ $.Release.Namespace }}.svc
  {{- end }}
{{- end }}
{{- if .Values.metrics.authorization }}
authorization:
  type: Bearer
  credentials: {name: {{ $monitoring.tokenSecret.name | default "gatewright-metrics-token" }}, key: {{ $monitoring.tokenSecret.key }}}
{{- end }}
{{- end -}}

{{/* Rules about what is in namespaces: of a ClusterRole, or of a Role in each of controller.namespaces. */}}
{{- define "gatewright.rules" -}}
# Reads. The controller watches the metadata of Secrets of the types kubernetes.io/tls, gatewright.io/htpasswd and gatewright.io/oidc-client, and gets the
# data of those that a Gateway, listener or AccessPolicy refers to; of ConfigMaps it watches the metadata, and gets those that a policy refers to. RBAC
# cannot be narrower. Of pods it keeps the addresses, to check endpoints.
- apiGroups: [""]
  resources: [services, pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, listenersets, httproutes, grpcroutes, tlsroutes, tcproutes, udproutes, referencegrants, backendtlspolicies]
  verbs: [list, watch]
{{- if include "gatewright.experimental" . }}
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackends, xbackendtrafficpolicies, xlistenersets, xtelemetrypolicies]
  verbs: [list, watch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackends/status, xbackendtrafficpolicies/status, xlistenersets/status, xtelemetrypolicies/status]
  verbs: [patch]
{{- end }}
- apiGroups: [gateway.cozystack.io]
  resources: [tenantgateways]
  verbs: [list, watch]
- apiGroups: [cert-manager.io]
  resources: [issuers, certificates]
  verbs: [list, watch]
- apiGroups: [gatewright.io]
  resources: [accesspolicies, directresponses, gatewayparameters, trafficpolicies]
  verbs: [list, watch]
# Each Gateway of the dedicated fleet has a Service that leads to the Envoys.
- apiGroups: [""]
  resources: [services]
  verbs: [create, patch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [create, patch, delete]
# Writes: statuses.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways/status, listenersets/status, httproutes/status, grpcroutes/status, tlsroutes/status, tcproutes/status, udproutes/status, backendtlspolicies/status]
  verbs: [patch]
- apiGroups: [gateway.cozystack.io]
  resources: [tenantgateways/status]
  verbs: [patch]
- apiGroups: [gatewright.io]
  resources: [trafficpolicies/status, accesspolicies/status]
  verbs: [patch]
# Requests for reports: answered in their statuses, then removed; of a namespace with too many all at once.
- apiGroups: [gatewright.io]
  resources: [reportrequests]
  verbs: [list, watch, delete, deletecollection]
- apiGroups: [gatewright.io]
  resources: [reportrequests/status]
  verbs: [patch]
# Derived objects of TenantGateways. An apply creates missing objects; the controller gets an object first if others wrote into it.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, listenersets, httproutes]
  verbs: [get, create, patch, delete]
- apiGroups: [cert-manager.io]
  resources: [issuers, certificates]
  verbs: [get, create, patch, delete]
# Events.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
# Owner references with blockOwnerDeletion (admission plugin OwnerReferencesPermissionEnforcement).
- apiGroups: [gateway.cozystack.io]
  resources: [tenantgateways/finalizers]
  verbs: [update]
{{- end -}}

{{/* The namespaces that the controller looks at, as a JSON list; nothing where it looks at all. */}}
{{- define "gatewright.namespaces" -}}
{{- with .Values.controller.namespaces }}{{ append . $.Release.Namespace | uniq | sortAlpha | toJson }}{{ end }}
{{- end -}}

{{/* The first variable of policies that exempt the platform: the groups of trusted callers. */}}
{{- define "gatewright.trustedGroups" -}}
# Members of these groups are the platform. The last one has the service accounts of this installation.
- name: trustedGroups
  expression: >-
    [{{ range .Values.policies.trustedGroups }}{{ toRawJson . }},
    {{ end }}{{ toRawJson (printf "system:serviceaccounts:%s" .Release.Namespace) }}]
{{- end -}}

{{/* "true" where the experimental channel of the Gateway API is served. */}}
{{- define "gatewright.experimental" -}}
{{- if eq ((.Values.configuration.gatewayApi | default dict).channel | default "Standard") "Experimental" }}true{{ end }}
{{- end -}}

{{/* The labels of a namespace that are the platform's, as a list of CEL: also those by which limits.overrides select namespaces. */}}
{{- define "gatewright.platform-labels" -}}
{{- $keys := list "namespace.cozystack.io/host" "namespace.cozystack.io/gateway" "gatewright.io/endpoints" -}}
{{- range ((.Values.configuration.limits | default dict).overrides | default list) -}}
{{- range $key, $_ := .namespaces.matchLabels | default dict -}}
{{- $keys = append $keys $key -}}
{{- end -}}
{{- range .namespaces.matchExpressions | default list -}}
{{- $keys = append $keys .key -}}
{{- end -}}
{{- end -}}
['{{ without ($keys | uniq) "kubernetes.io/metadata.name" | join "', '" }}']
{{- end -}}
