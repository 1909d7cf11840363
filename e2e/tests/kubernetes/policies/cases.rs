//! The writes that the policies decide about.

use super::*;

pub(super) fn cases() -> Vec<Case> {
    let case = |what, object, refused| Case {
        what,
        group: "tenants",
        object,
        refused,
    };
    let by = |group, what, object, refused| Case {
        what,
        group,
        object,
        refused,
    };
    vec![
        case(
            "own apex",
            gateway("tenant-a", "HTTPS", Some("a.example.org")),
            None,
        ),
        case(
            "below it",
            gateway("tenant-a", "HTTPS", Some("*.a.example.org")),
            None,
        ),
        case(
            "another's",
            gateway("tenant-a", "HTTPS", Some("b.example.org")),
            Some("must equal a.example.org"),
        ),
        case(
            "no dot before it",
            gateway("tenant-a", "HTTPS", Some("evila.example.org")),
            Some("must equal"),
        ),
        case(
            "TLS without a hostname",
            gateway("tenant-a", "HTTPS", None),
            Some("must name a hostname"),
        ),
        case(
            "HTTP without one, for challenges",
            gateway("tenant-a", "HTTP", None),
            None,
        ),
        case(
            "a namespace without host",
            gateway("tenant-none", "HTTPS", Some("x.org")),
            Some("has no label"),
        ),
        case(
            "the platform's own",
            gateway("infra", "HTTPS", Some("anything.org")),
            None,
        ),
        case(
            "a set, own",
            listener_set("tenant-a", "x.a.example.org"),
            None,
        ),
        case(
            "a set, another's",
            listener_set("tenant-a", "b.example.org"),
            Some("must equal"),
        ),
        by(
            "system:masters",
            "even masters",
            gateway("tenant-a", "HTTPS", Some("b.org")),
            Some("must equal"),
        ),
        case(
            "route, own",
            route(
                "HTTPRoute",
                "tenant-a",
                &["a.example.org", "x.a.example.org"],
            ),
            None,
        ),
        case(
            "route, another's",
            route("HTTPRoute", "tenant-a", &["b.example.org"]),
            Some("must equal"),
        ),
        case(
            "route, one of two",
            route("HTTPRoute", "tenant-a", &["a.example.org", "b.org"]),
            Some("b.org"),
        ),
        case(
            "route without hostnames",
            route("HTTPRoute", "tenant-a", &[]),
            Some("must name a host: a.example.org or"),
        ),
        case(
            "who is told so",
            route("HTTPRoute", "tenant-a", &[]),
            Some("user user-"),
        ),
        case(
            "gRPC without hostnames",
            route("GRPCRoute", "tenant-a", &[]),
            Some("must name a host"),
        ),
        case(
            "redirect of a tenant",
            redirect(route("HTTPRoute", "tenant-a", &[])),
            Some("must name a host"),
        ),
        by(
            "system:serviceaccounts:gatewright-system",
            "redirect of a TenantGateway",
            redirect(route("HTTPRoute", "tenant-a", &[])),
            None,
        ),
        by(
            "system:serviceaccounts:gatewright-system",
            "no redirect",
            route("HTTPRoute", "tenant-a", &[]),
            Some("must name a host"),
        ),
        case(
            "route of a Service",
            parent(
                route("HTTPRoute", "tenant-a", &[]),
                json!({"group": "", "kind": "Service"}),
            ),
            None,
        ),
        case(
            "route, no label",
            route("HTTPRoute", "tenant-none", &["x.org"]),
            Some("has no label"),
        ),
        case(
            "gRPC, another's",
            route("GRPCRoute", "tenant-a", &["b.org"]),
            Some("must equal"),
        ),
        case(
            "TLS, another's",
            route("TLSRoute", "tenant-a", &["b.org"]),
            Some("must equal"),
        ),
        case(
            "TLS, own",
            route("TLSRoute", "tenant-a", &["x.a.example.org"]),
            None,
        ),
        case(
            "route of the platform",
            route("HTTPRoute", "infra", &["b.org"]),
            None,
        ),
        case(
            "host label set",
            namespace("tenant-none", json!({HOST: "x.org"})),
            Some("immutable"),
        ),
        case(
            "host label changed",
            namespace("tenant-a", json!({HOST: "b.example.org"})),
            Some("immutable"),
        ),
        case(
            "host label the same",
            namespace("tenant-a", json!({HOST: "a.example.org", "x": "y"})),
            None,
        ),
        case(
            "gateway label set",
            namespace("infra", json!({OWNER: "tenant-a"})),
            Some("immutable"),
        ),
        case(
            "endpoints label set",
            namespace("infra", json!({"gatewright.io/endpoints": "any"})),
            Some("immutable"),
        ),
        case(
            "gateway label set to nothing",
            namespace("infra", json!({OWNER: ""})),
            Some("immutable"),
        ),
        case("who attached it", attached("infra"), Some("immutable")),
        case(
            "new with label",
            namespace("tenant-new", json!({HOST: "n.org"})),
            Some("immutable"),
        ),
        case("new without", namespace("new", json!({})), None),
        by(
            "system:serviceaccounts:cozy-fluxcd",
            "by the platform",
            namespace("tenant-none", json!({HOST: "n.org"})),
            None,
        ),
        case(
            "on plain HTTP too",
            route("HTTPRoute", "owner", &["x.org"]),
            Some("add port 443"),
        ),
        case(
            "by name",
            parent(
                route("HTTPRoute", "owner", &["x.org"]),
                json!({"sectionName": "http"}),
            ),
            Some("port 443"),
        ),
        case(
            "over TLS only",
            parent(
                route("HTTPRoute", "owner", &["x.org"]),
                json!({"port": 443}),
            ),
            None,
        ),
        case(
            "one listener for TLS",
            parent(
                route("HTTPRoute", "owner", &["x.org"]),
                json!({"sectionName": "https-x"}),
            ),
            None,
        ),
        case(
            "at another's",
            parent(
                route("HTTPRoute", "owner", &["x.org"]),
                json!({"namespace": "infra"}),
            ),
            None,
        ),
        case(
            "of another",
            parent(
                route("HTTPRoute", "infra", &["x.org"]),
                json!({"namespace": "owner"}),
            ),
            None,
        ),
        case(
            "a redirect",
            rules(json!([{"filters": [{"type": "RequestRedirect",
            "requestRedirect": {"scheme": "https", "statusCode": 301}}]}])),
            None,
        ),
        case(
            "a challenge",
            rules(json!([{"matches": [{"path": {"type": "Exact",
            "value": "/.well-known/acme-challenge/token"}}], "backendRefs": [{"name": "solver", "port": 8089}]}])),
            None,
        ),
        case(
            "a challenge and more",
            rules(json!([
            {"matches": [{"path": {"type": "Exact", "value": "/.well-known/acme-challenge/token"}},
                {"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "web", "port": 80}]}])),
            Some("add port 443"),
        ),
        case(
            "a tenant's host",
            tenant(Some("evil.org")),
            Some("spec.host can only be set"),
        ),
        case("no host", tenant(None), None),
        case(
            "a Service that looks like ours",
            dedicated("new", 20_001),
            Some("belongs to its controller"),
        ),
        case(
            "the port of one",
            dedicated("edge", 20_002),
            Some("belongs to its controller"),
        ),
        case(
            "something else of one",
            labelled(dedicated("edge", 20_001), "team", "blue"),
            None,
        ),
        case(
            "what makes it ours",
            labelled(dedicated("edge", 20_001), MANAGED_BY, "x"),
            Some("belongs to its"),
        ),
        case(
            "any other Service",
            labelled(dedicated("new", 20_001), MANAGED_BY, "Helm"),
            None,
        ),
        case(
            "a slice that looks like ours",
            lent("new", 20_001),
            Some("leads Service web to a Gateway belongs to"),
        ),
        case(
            "the port of a slice",
            lent("edge-web-v4", 20_002),
            Some("belongs to its controller"),
        ),
        case(
            "something else of a slice",
            labelled(lent("edge-web-v4", 20_001), "team", "blue"),
            None,
        ),
        case(
            "what makes a slice ours",
            labelled(lent("edge-web-v4", 20_001), SLICES_BY, "x"),
            Some("belongs to its"),
        ),
        case(
            "any other slice",
            labelled(lent("new", 20_001), SLICES_BY, "somebody"),
            None,
        ),
        by(
            "system:serviceaccounts:gatewright-system",
            "a slice by the controller",
            lent("edge-web-v4", 20_003),
            None,
        ),
        by(
            "system:serviceaccounts:gatewright-system",
            "a Service by the controller",
            dedicated("edge", 20_003),
            None,
        ),
        by(
            "system:serviceaccounts:cozy-system",
            "host by the platform",
            tenant(Some("good.org")),
            None,
        ),
    ]
}
