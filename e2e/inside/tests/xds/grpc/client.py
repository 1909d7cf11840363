"""An xDS client that shares nothing with ours: Google's gRPC, and the messages as the gRPC project publishes them.

client.py SOCKET (delta|sotw) NODE: each line of input is a request in JSON,

    {"kind": "Cluster", "names": ["a"], "drop": ["b"], "first": true}

and each response is a line of output that says what came and what is held now. A cluster whose alt_stat_name is
"refuse me" is refused, in this client's own words. It holds only what came in responses that it accepted.
"""

import json
import queue
import sys
import threading

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

KINDS = {
    "Cluster": cluster_pb2.Cluster,
    "ClusterLoadAssignment": endpoint_pb2.ClusterLoadAssignment,
    "Listener": listener_pb2.Listener,
    "Secret": secret_pb2.Secret,
}
URLS = {"type.googleapis.com/" + message.DESCRIPTOR.full_name: kind for kind, message in KINDS.items()}
TYPES = {kind: url for url, kind in URLS.items()}

held = {kind: {} for kind in KINDS}  # name -> version (delta) or the name again (state of the world)
wanted = {kind: [] for kind in KINDS}
accepted = {kind: "" for kind in KINDS}  # state of the world: version and nonce of the last response
nonces = {kind: "" for kind in KINDS}
outgoing = queue.Queue()


def name_of(message):
    return getattr(message, "name", "") or getattr(message, "cluster_name", "")


def unpack(any, kind):
    message = KINDS[kind]()
    assert any.Unpack(message), f"{any.type_url} is not a {kind}"
    return message


def verdict(messages):
    bad = [m.name for m in messages if getattr(m, "alt_stat_name", "") == "refuse me"]
    return f"python will not have {', '.join(bad)}" if bad else None


def refuse(request, words):
    if words:
        request.error_detail.code = grpc.StatusCode.INVALID_ARGUMENT.value[0]
        request.error_detail.message = words


def delta(response, kind):
    words = verdict([unpack(r.resource, kind) for r in response.resources])
    if not words:
        held[kind].update({r.name: r.version for r in response.resources})
        for name in response.removed_resources:
            held[kind].pop(name, None)
    answer = discovery_pb2.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
    refuse(answer, words)
    return answer, [r.name for r in response.resources], list(response.removed_resources)


def sotw(response, kind):
    messages = [unpack(any, kind) for any in response.resources]
    words = verdict(messages)
    nonces[kind] = response.nonce
    if not words:
        accepted[kind] = response.version_info
        held[kind] = {name_of(m): name_of(m) for m in messages}
    answer = discovery_pb2.DiscoveryRequest(
        type_url=response.type_url,
        response_nonce=response.nonce,
        version_info=accepted[kind],
        resource_names=wanted[kind],
    )
    refuse(answer, words)
    return answer, [name_of(m) for m in messages], []


def ask(command, incremental):
    kind = command["kind"]
    if incremental:
        return discovery_pb2.DeltaDiscoveryRequest(
            type_url=TYPES[kind],
            resource_names_subscribe=command.get("names", []),
            resource_names_unsubscribe=command.get("drop", []),
            initial_resource_versions=command.get("holds", {}),
        )
    wanted[kind] = command.get("names", [])
    accepted[kind] = command.get("version", accepted[kind])
    return discovery_pb2.DiscoveryRequest(
        type_url=TYPES[kind],
        resource_names=wanted[kind],
        version_info=accepted[kind],
        response_nonce=nonces[kind],
    )


def commands(incremental):
    for line in sys.stdin:
        outgoing.put(ask(json.loads(line), incremental))
    outgoing.put(None)


def requests(node):
    first = True
    for request in iter(outgoing.get, None):
        if first:
            request.node.id = node
            first = False
        yield request


def main():
    socket, protocol, node = sys.argv[1:]
    incremental = protocol == "delta"
    # gRPC would name the socket's path as the authority, which is none by RFC 3986 and which hyper refuses.
    channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "xds")])
    stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
    rpc = stub.DeltaAggregatedResources if incremental else stub.StreamAggregatedResources
    threading.Thread(target=commands, args=(incremental,), daemon=True).start()
    for response in rpc(requests(node)):
        kind = URLS[response.type_url]
        answer, came, gone = (delta if incremental else sotw)(response, kind)
        outgoing.put(answer)
        line = {
            "kind": kind,
            "came": sorted(came),
            "gone": sorted(gone),
            "held": held[kind],
            "version": accepted[kind],
            "refused": answer.error_detail.message,
        }
        print(json.dumps(line), flush=True)


main()
