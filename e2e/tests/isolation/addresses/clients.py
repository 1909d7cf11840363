"""Clients of several addresses open connections to one port, in the network of this process: a line of JSON with how many each opened."""

import json
import socket
import threading

PORT = 443


def serve(family, address):
    listener = socket.socket(family)
    listener.bind((address, PORT))
    listener.listen(1000)
    held = []

    def accept():
        while True:
            held.append(listener.accept())

    threading.Thread(target=accept, daemon=True).start()


def opened(family, client, server, count):
    held = []
    for _ in range(count):
        connection = socket.socket(family)
        connection.settimeout(5)
        connection.bind((client, 0))
        try:
            connection.connect((server, PORT))
        except ConnectionRefusedError:
            continue
        held.append(connection)
    return held


IPV4 = (socket.AF_INET, "127.0.0.1")
IPV6 = (socket.AF_INET6, "::1")
serve(*IPV4)
serve(*IPV6)
clients = [
    (IPV4, "127.0.0.2", 300),
    (IPV4, "127.0.0.3", 50),
    (IPV6, "2001:db8:1::1", 150),
    (IPV6, "2001:db8:1::2", 150),
    (IPV6, "2001:db8:2::1", 50),
]
held = {client: opened(family, client, server, count) for (family, server), client, count in clients}
print(json.dumps({client: len(connections) for client, connections in held.items()}))
