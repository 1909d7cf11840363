//! Random events.

use super::*;

pub(super) fn listener() -> impl Strategy<Value = Value> {
    let protocol = pick(&["HTTP", "HTTPS", "HTTPS", "TLS", "TLS-", "TCP", "UDP"]);
    let from = pick(&["All", "Same", "Selector"]);
    let certificate = pick(&["none", "a/one", "a/two", "b/one", "b/gone", "issued"]);
    let version = pick(&["1.2", "1.3"]);
    (
        protocol,
        pick(HOSTS),
        proptest::sample::select(PORTS),
        from,
        certificate,
        version,
        filters(),
    )
        .prop_map(
            |(protocol, hostname, port, from, certificate, version, filters)| {
                let mut listener = json!({"port": port, "protocol": protocol.trim_end_matches('-'),
                "allowedRoutes": {"namespaces": {"from": from}}, "filters": filters});
                if from == "Selector" {
                    listener["allowedRoutes"]["namespaces"]["selector"] =
                        json!({"matchLabels": {"team": "blue"}});
                }
                // A TCP or UDP listener with a hostname is refused: sometimes generated.
                let is_bare = matches!(protocol, "TCP" | "UDP") && hostname != "y.org";
                if !hostname.is_empty() && !is_bare {
                    listener["hostname"] = json!(hostname);
                }
                if protocol == "TLS" {
                    listener["tls"] = json!({"mode": "Passthrough"});
                } else if protocol == "HTTPS" || protocol == "TLS-" {
                    listener["tls"] = json!({"mode": "Terminate"});
                    if certificate == "issued" {
                        listener["tls"]["options"] = json!({"gatewright.io/issuer": "internal-ca"});
                    } else if certificate == "a/one" {
                        listener["tls"]["certificateRefs"] =
                            json!([{"namespace": "a", "name": "one"}]);
                        listener["tls"]["options"] =
                            json!({"gatewright.io/tls-min-version": version});
                    } else if let Some((namespace, name)) = certificate.split_once('/') {
                        listener["tls"]["certificateRefs"] =
                            json!([{"namespace": namespace, "name": name}]);
                    }
                }
                let is_exact = !hostname.is_empty() && !hostname.starts_with('*');
                if protocol == "HTTPS" && version == "1.3" && is_exact {
                    listener["tls"]["options"]["gatewright.io/http3"] = json!("Enabled");
                }
                if protocol == "HTTPS" && version == "1.2" && is_exact {
                    listener["tls"]["options"]["gatewright.io/session-tickets"] = json!("Enabled");
                }
                listener
            },
        )
}

pub(super) fn listeners() -> impl Strategy<Value = Value> {
    proptest::collection::vec(listener(), 1..4).prop_map(|mut all| {
        for (i, listener) in all.iter_mut().enumerate() {
            listener["name"] = json!(format!("l{i}"));
        }
        Value::Array(all)
    })
}

pub(super) fn gateway() -> impl Strategy<Value = Object> {
    let allowed = pick(&["All", "None", "Same", "Selector"]);
    let addresses = addresses();
    (
        pick(NAMESPACES),
        pick(&["g", "f"]),
        0u32..3,
        pick(&["ours", "ours", "theirs", "common", "common"]),
        listeners(),
        allowed,
        addresses,
        (
            pick(&["", "", "a", "b"]),
            proptest::option::weighted(0.3, frontend_tls()),
            pick(&["", "", "n"]),
            pick(&["None", "None", "All"]),
        ),
    )
        .prop_map(
            |(namespace, name, created, class, listeners, allowed, addresses, (client, frontend, own, scope))| {
                let mut namespaces = json!({"from": allowed});
                if allowed == "Selector" {
                    namespaces["selector"] = json!({"matchLabels": {"team": "blue"}});
                }
                let mut spec = json!({"gatewayClassName": class, "listeners": listeners, "addresses": addresses,
                "allowedListeners": {"namespaces": namespaces}, "defaultScope": scope});
                spec["tls"] = json!({});
                refer(&mut spec, own);
                if !client.is_empty() {
                    spec["tls"]["backend"] = json!({"clientCertificateRef": {"namespace": client, "name": "one"}});
                }
                if let Some(frontend) = frontend {
                    spec["tls"]["frontend"] = frontend;
                }
                gateway_object("Gateway", namespace, name, created, spec)
            },
        )
}

/// Client certificate validation: on every port, or on one of them.
pub(super) fn frontend_tls() -> impl Strategy<Value = Value> {
    let reference = (pick(NAMESPACES), pick(&["ca", "gone"]));
    let mode = pick(&["AllowValidOnly", "AllowInsecureFallback"]);
    let validation = (proptest::collection::vec(reference, 1..3), mode).prop_map(|(references, mode)| {
        let references: Vec<Value> = references.into_iter().map(|(namespace, name)| json!({"group": "", "kind": "ConfigMap", "namespace": namespace, "name": name})).collect();
        json!({"validation": {"caCertificateRefs": references, "mode": mode}})
    });
    (validation, pick(&["every", "one", "others"])).prop_map(|(validation, ports)| match ports {
        "every" => json!({"default": validation}),
        "one" => json!({"default": {}, "perPort": [{"port": 443, "tls": validation}]}),
        _ => json!({"default": validation, "perPort": [{"port": 443, "tls": {}}]}),
    })
}

pub(super) fn route() -> impl Strategy<Value = Object> {
    let hostnames = proptest::collection::vec(pick(&HOSTS[1..]), 0..3);
    let kind = pick(&["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"]);
    let backends = proptest::collection::vec(
        (pick(NAMESPACES), pick(&["web", "api", "web", "x"]), 0i32..3),
        0..3,
    );
    (
        kind,
        pick(NAMESPACES),
        pick(&["r", "q", "p"]),
        0u32..3,
        parent_refs(),
        hostnames,
        backends,
        (pick(&["/", "/a", "("]), with_session(), with_auth(), answer(), pick(&["None", "None", "All"])),
    )
        .prop_map(
            |(kind, namespace, name, created, parents, mut hostnames, backends, (path, session, auth, answer, defaults))| {
                if kind == "TLSRoute" && hostnames.is_empty() {
                    hostnames.push("h.x.org");
                }
                let backends: Vec<Value> = backends
                    .into_iter()
                    .map(|(ns, name, weight)| match name {
                        "x" => json!({"group": group("XBackend"), "kind": "XBackend", "namespace": ns, "name": name,
                            "weight": weight}),
                        _ => json!({"namespace": ns, "name": name, "port": 80, "weight": weight}),
                    })
                    .collect();
                let mut rule = json!({"backendRefs": backends});
                if created == 1 && matches!(kind, "HTTPRoute" | "GRPCRoute") {
                    rule["name"] = json!("main");
                }
                if kind == "HTTPRoute" {
                    let kind = if path == "(" { "RegularExpression" } else { "PathPrefix" };
                    rule["matches"] = json!([{"path": {"type": kind, "value": path}}]);
                    rule["filters"] = auth.iter().chain(&answer).cloned().collect();
                    if answer.is_some() {
                        rule["backendRefs"] = json!([]);
                    }
                }
                if matches!(kind, "HTTPRoute" | "GRPCRoute") {
                    session.into_iter().for_each(|session| rule["sessionPersistence"] = session);
                }
                if kind == "GRPCRoute" && path != "/" {
                    let kind = if path == "(" { "RegularExpression" } else { "Exact" };
                    let service = path.trim_start_matches('/');
                    rule["matches"] = json!([{"method": {"type": kind, "service": service}}]);
                }
                let mut spec = json!({"parentRefs": parents, "hostnames": hostnames, "rules": [rule],
                "useDefaultGateways": defaults});
                if matches!(kind, "TCPRoute" | "UDPRoute") {
                    spec.as_object_mut().expect("made above").remove("hostnames");
                    if spec["rules"][0]["backendRefs"].as_array().is_some_and(Vec::is_empty) {
                        spec["rules"][0]["backendRefs"] = json!([{"name": "web", "port": 80}]);
                    }
                }
                match gateway_object(kind, namespace, name, created, spec) {
                    // Sometimes a route that cert-manager's solver made.
                    Object::Route(route) => Object::Route(gatewright_objects::inputs::Route { challenge: path == "/a", ..route }),
                    other => other,
                }
            },
        )
}

pub(super) fn other() -> impl Strategy<Value = Object> {
    let grant = (
        pick(NAMESPACES),
        pick(&["Gateway", "HTTPRoute", "GRPCRoute", "TCPRoute", "UDPRoute", "ListenerSet", "XListenerSet"]),
        pick(&["Secret", "Service", "ConfigMap", "XBackend"]),
        pick(NAMESPACES),
    )
        .prop_map(|(namespace, from, to, from_namespace)| {
            let of_target = if to == "XBackend" { group(to) } else { "" };
            let spec = json!({"from": [{"group": group(from), "kind": from, "namespace": from_namespace}],
                "to": [{"group": of_target, "kind": to}]});
            gateway_object(
                "ReferenceGrant",
                namespace,
                &format!("{}-{}", from.to_lowercase(), to.to_lowercase()),
                0,
                spec,
            )
        });
    let class = (
        pick(&["ours", "theirs"]),
        pick(&[CONTROLLER, "example.com/other"]),
    )
        .prop_map(|(name, controller)| {
            object(
                json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": name}, "spec": {"controllerName": controller}}),
            )
        });
    let parameters = pick(&[
        "Shared",
        "Dedicated",
        "",
        "Dedicated, named",
        "Shared, open",
        "Shared, open",
        "Isolated",
        "Isolated",
    ])
    .prop_map(parameters);
    let namespace =
        (pick(NAMESPACES), pick(&["blue", "red"]), pick(&["x.org", "h.x.org"])).prop_map(|(name, team, host)| {
            let labels = json!({"team": team, gatewright_objects::inputs::HOST_LABEL: host});
            object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
        });
    let service = (
        pick(NAMESPACES),
        pick(&["web", "api"]),
        pick(&["kubernetes.io/h2c", "http"]),
        proptest::sample::select(vec![80, 81]),
    )
        .prop_map(|(namespace, name, app, port)| {
            object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
                "spec": {"ports": [{"name": "p", "port": port, "appProtocol": app},
                    {"name": "u", "port": 80, "protocol": "UDP"}]}}))
        });
    let exposure = (
        pick(NAMESPACES),
        pick(&["g", "f"]),
        pick(&["", "10.9.0.1"]),
        25_225i32..25_228,
    )
        .prop_map(|(namespace, gateway, ip, target)| exposure(namespace, gateway, ip, target));
    let slice = (pick(NAMESPACES), pick(&["one", "two"]), pick(&["web", "api"]), 1u8..4).prop_map(
        |(namespace, name, service, last)| {
            object(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": service}},
            "ports": [{"name": "p", "port": 8080}, {"name": "u", "port": 8080, "protocol": "UDP"}], "endpoints": [{"addresses": [format!("10.0.0.{last}")]}]}))
        },
    );
    let secret = (
        pick(NAMESPACES),
        pick(&["one", "two", "h-x-org-tls"]),
        pick(&["1", "2", "expired"]),
    )
        .prop_map(|(namespace, name, serial)| secret(namespace, name, serial));
    prop_oneof![
        grant, class, parameters, namespace, service, exposure, slice, secret
    ]
}

pub(super) fn event() -> impl Strategy<Value = Change> {
    let object = prop_oneof![3 => gateway(), 2 => listener_set(), 4 => route(), 4 => other(), 2 => policy(), 2 => attached_policy(), 1 => users(), 1 => named(), 2 => direct_response()];
    let objects = (object, proptest::bool::weighted(0.2)).prop_map(|(object, delete)| {
        if delete {
            Change::delete(object.key())
        } else {
            Change::put(object)
        }
    });
    prop_oneof![12 => objects, 2 => challenge(), 1 => granted(), 1 => withheld(), 1 => trust_bundles(), 1 => ticket_keys(), 1 => definitions(), 1 => governed()]
}

pub(super) fn challenge() -> impl Strategy<Value = Change> {
    let port = proptest::sample::select(vec![80, 80, 443, 8080]);
    let thumbprint = pick(&["", "one", "one", "two"]);
    let answer = (pick(HOSTS), pick(NAMESPACES), port, thumbprint).prop_map(
        |(hostname, namespace, port, thumbprint)| {
            let answer = (!thumbprint.is_empty()).then(|| ChallengeAnswer {
                port,
                thumbprint: thumbprint.into(),
            });
            let hostname = Hostname::parse(hostname).ok().filter(Hostname::is_exact);
            let hostname =
                hostname.unwrap_or_else(|| Hostname::parse("y.org").expect("a hostname"));
            Change::Fact(Fact::Challenge(
                Asked {
                    hostname,
                    namespace: namespace.into(),
                },
                answer,
            ))
        },
    );
    let trouble = (pick(&["", "no luck"])).prop_map(|text| {
        let name = issued_secret_name(
            "internal-ca",
            &Hostname::parse("h.x.org").expect("a hostname"),
        );
        Change::Fact(Fact::IssuanceProblem(
            ObjectName::new("a", name),
            (!text.is_empty()).then(|| text.to_owned()),
        ))
    });
    let awaited = (pick(&["one", "gone"]), pick(&["", "somebody"])).prop_map(|(secret, by)| {
        Change::Fact(Fact::ExpectedIssuer(
            ObjectName::new("b", secret),
            (!by.is_empty()).then(|| by.into()),
        ))
    });
    let unexposed = (pick(NAMESPACES), pick(&["", "refused"])).prop_map(|(namespace, text)| {
        Change::Fact(Fact::ServiceProblem(
            ObjectName::new(namespace, "g"),
            (!text.is_empty()).then(|| text.to_owned()),
        ))
    });
    prop_oneof![3 => answer, 1 => trouble, 1 => awaited, 1 => unexposed]
}

/// Changes around one wildcard listener: its certificate, options and hostname, a narrower
/// listener, routes.
pub(super) fn beneath() -> impl Strategy<Value = Change> {
    let wide = (
        pick(&["*.x.org", "*.x.org", ""]),
        pick(&["HTTPS", "HTTPS", "TLS"]),
        pick(&["one", "two"]),
    );
    let options = (
        pick(&["1.2", "1.3"]),
        pick(&["h2", "http/1.1"]),
        pick(&["", "", "HTTPS", "TLS"]),
    );
    let gateway = (wide, options).prop_map(|((hostname, protocol, certificate), (version, alpn, narrow))| {
        let tls = json!({"mode": "Terminate", "certificateRefs": [{"name": certificate}],
            "options": {"gatewright.io/tls-min-version": version, "gatewright.io/tls-alpn": alpn}});
        let mut wide = json!({"name": "wide", "port": 443, "protocol": protocol, "tls": tls});
        if !hostname.is_empty() {
            wide["hostname"] = json!(hostname);
        }
        let mut listeners = vec![wide];
        if !narrow.is_empty() {
            let tls = json!({"mode": "Terminate", "certificateRefs": [{"name": "two"}]});
            listeners
                .push(json!({"name": "narrow", "port": 443, "protocol": narrow, "hostname": "h.x.org", "tls": tls}));
        }
        gateway_object("Gateway", "a", "g", 0, json!({"gatewayClassName": "ours", "listeners": listeners}))
    });
    let route = (
        pick(&["HTTPRoute", "GRPCRoute", "TLSRoute"]),
        pick(&["h.x.org", "k.h.x.org", "*.h.x.org", "*.x.org"]),
    )
        .prop_map(|(kind, hostname)| {
            let name = format!("r{}", hostname.len());
            let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
            let spec =
                json!({"parentRefs": [{"name": "g"}], "hostnames": [hostname], "rules": rules});
            gateway_object(kind, "a", &name, 0, spec)
        });
    let secret = (pick(&["one", "two"]), pick(&["1", "2", "expired"]))
        .prop_map(|(name, serial)| secret("a", name, serial));
    let object = prop_oneof![3 => gateway, 2 => route, 2 => secret];
    (object, proptest::bool::weighted(0.25)).prop_map(|(object, delete)| {
        if delete {
            Change::delete(object.key())
        } else {
            Change::put(object)
        }
    })
}
