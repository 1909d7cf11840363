use serde_json::json;

use super::*;
use gatewright_core::inputs::Object;

fn live() -> ControlPlane {
    let settings = Settings::new("c", vec![[127, 0, 0, 1].into()]);
    let mut live = ControlPlane::in_cluster(settings, tenancy::Settings::default(), Cache::new(), View::new("v"));
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "g"}, "spec": {"controllerName": "c"}});
    put(&mut live, class);
    live
}

fn put(live: &mut ControlPlane, value: Value) {
    let change = Change::Put(Object::parse(value).expect("an object"));
    let record = &mut |_: &Outcome| Ok::<_, std::convert::Infallible>(());
    let _ =
        live.apply(vec![change], Vec::new(), record, SystemTime::UNIX_EPOCH, Duration::ZERO).expect("it is recorded");
}

fn gateway(port: u16) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
            "listeners": [{"name": "http", "protocol": "HTTP", "port": port}]}})
}

fn envoys(live: &mut ControlPlane, acknowledged: &[Generation]) {
    let node = |(number, acknowledged): (usize, &Generation)| NodeProgress {
        node: Arc::from(format!("envoy-{number}")),
        identity: Arc::from("fleet"),
        acknowledged: *acknowledged,
    };
    live.set_others(acknowledged.iter().enumerate().map(node).collect(), Vec::new());
}

#[test]
fn what_is_said_of_an_envoy_that_comes_late_is_looked_at_when_it_has_acknowledged() {
    let (mut live, key) = (live(), ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")));
    put(&mut live, gateway(80));
    let newest = live.generation;
    envoys(&mut live, &[newest]);
    assert!(live.take_touched().contains(&key));
    assert!(live.take_touched().is_empty(), "all is said");
    envoys(&mut live, &[newest, 0]);
    assert!(live.take_touched().contains(&key));
    live.look_at(&key);
    assert!(live.take_touched().is_empty());
    envoys(&mut live, &[newest, newest]);
    assert!(live.take_touched().contains(&key));
    live.look_at(&key);
    assert!(live.take_touched().is_empty());
}

#[test]
fn whose_a_refused_resource_is_is_looked_up_once_until_something_changes() {
    let (mut live, key) = (live(), ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")));
    put(&mut live, gateway(80));
    let refused = Rejection {
        view: View::new("v"),
        node: Arc::from("envoy"),
        kind: xds::Kind::Listener,
        name: Arc::from("a/edge:80"),
        part: None,
        version: Arc::from("1"),
        text: Arc::from("no room"),
    };
    live.set_others(Vec::new(), vec![refused]);
    let first = live.fleet().refused;
    assert_eq!(first.listeners.len(), 1, "{first:?}");
    live.laid_over(BTreeSet::from([key]));
    assert!(Arc::ptr_eq(&first, &live.fleet().refused));
    put(&mut live, gateway(81));
    assert!(live.fleet().refused.listeners.is_empty());
}

#[test]
fn what_nobody_acknowledges_is_not_remembered_for_ever() {
    let mut live = live();
    for number in 0..ANNOUNCED + 10 {
        put(&mut live, gateway(if number % 2 == 0 { 80 } else { 81 }));
    }
    assert_eq!(live.waiting.len(), ANNOUNCED);
}

#[test]
fn a_condition_is_told_once_for_as_long_as_it_stands() {
    let mut live = live();
    let mut events = |value: Value| {
        let record = &mut |_: &Outcome| Ok::<_, std::convert::Infallible>(());
        let change = vec![Change::Put(Object::parse(value).expect("an object"))];
        let Effects { events, .. } =
            live.apply(change, Vec::new(), record, SystemTime::UNIX_EPOCH, Duration::ZERO).expect("it is recorded");
        events.iter().filter(|event| event.to_string().contains("UnsupportedProtocol")).count()
    };
    let gateway = |protocol: &str, port: u16| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
                "listeners": [{"name": "x", "protocol": protocol, "port": port}]}})
    };
    let told = [("SCTP", 80), ("SCTP", 81), ("HTTP", 81), ("SCTP", 81)]
        .map(|(protocol, port)| events(gateway(protocol, port)));
    assert_eq!(told.map(|count| count.min(1)), [1, 0, 0, 1], "told, told already, good, told again");
}
