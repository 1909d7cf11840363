"""Clients of several addresses open connections to an Envoy, in the network of this process, without the rule and with it: a line of JSON
with how many each opened, and how many requests of another address were answered meanwhile."""

import json
import socket
import subprocess
import sys
import time

PORT = 443
# The connections of all clients together that Envoy accepts.
MOST = 600
REQUESTS = 10
IPV4 = (socket.AF_INET, "127.0.0.1")
IPV6 = (socket.AF_INET6, "::1")
OTHER = "127.0.0.9"

nft, rule, envoy = sys.argv[1:]


def connected(family, client, server):
    connection = socket.socket(family)
    connection.settimeout(5)
    connection.bind((client, 0))
    connection.connect((server, PORT))
    return connection


def opened(family, client, server, count):
    """Idle connections: without a request."""
    held = []
    for _ in range(count):
        try:
            held.append(connected(family, client, server))
        except ConnectionRefusedError:
            continue
    return held


def is_answered(client):
    try:
        with connected(IPV4[0], client, IPV4[1]) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a.example.org\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def answered(client):
    return sum(is_answered(client) for _ in range(REQUESTS))


def bootstrap():
    types = "type.googleapis.com/envoy.extensions"
    router = {"@type": f"{types}.filters.http.router.v3.Router"}
    host = {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": [host]},
        "http_filters": [{"name": "router", "typed_config": router}],
    }
    limit = {
        "@type": f"{types}.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
        "max_active_downstream_connections": MOST,
    }
    address = {"address": "::", "port_value": PORT, "ipv4_compat": True}
    listener = {
        "name": "http",
        "address": {"socket_address": address},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    monitor = {"name": "envoy.resource_monitors.global_downstream_max_connections", "typed_config": limit}
    return {"overload_manager": {"resource_monitors": [monitor]}, "static_resources": {"listeners": [listener]}}


def load_rule():
    # It replaces itself.
    for _ in range(2):
        subprocess.run([nft, "-f", rule], check=True)


arguments = ["--config-yaml", json.dumps(bootstrap()), "--disable-hot-restart", "--concurrency", "1", "-l", "off"]
server = subprocess.Popen([envoy, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    while not is_answered(OTHER):
        assert server.poll() is None, "Envoy has ended"
        time.sleep(0.05)
    without = opened(*IPV4[:1], "127.0.0.2", IPV4[1], MOST)
    told = {"answered without the rule": answered(OTHER)}
    for connection in without:
        connection.close()
    while not is_answered(OTHER):
        time.sleep(0.05)
    load_rule()
    clients = [
        (IPV4, "127.0.0.2", MOST),
        (IPV4, "127.0.0.3", 50),
        (IPV6, "2001:db8:1::1", 150),
        (IPV6, "2001:db8:1::2", 150),
        (IPV6, "2001:db8:2::1", 50),
    ]
    held = {client: opened(family, client, address, count) for (family, address), client, count in clients}
    told |= {client: len(connections) for client, connections in held.items()}
    told["answered"] = answered(OTHER)
    print(json.dumps(told))
finally:
    server.kill()
