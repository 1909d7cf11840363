"""gRPC's own xDS client: a channel to `xds:///TARGET`, configured by the server at PORT of localhost over mutual TLS.

channel.py PORT CREDENTIALS TARGET: serves two backends that answer with their own name, prints their ports, and then for each line
of input makes a call and prints what answered it, or the error.
"""

import json
import os
import sys
from concurrent import futures

port, credentials, target = sys.argv[1:]
os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(
    {
        "xds_servers": [
            {
                "server_uri": f"localhost:{port}",
                # gRFC A65
                "channel_creds": [
                    {
                        "type": "tls",
                        "config": {
                            "ca_certificate_file": f"{credentials}/ca.pem",
                            "certificate_file": f"{credentials}/cert.pem",
                            "private_key_file": f"{credentials}/key.pem",
                        },
                    }
                ],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {"id": "grpc"},
    }
)

import grpc  # noqa: E402  (reads its bootstrap when it is loaded)


def backend(name):
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: name.encode())
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Who", {"Are": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


servers = [backend("one"), backend("two")]
print(json.dumps([port for _, port in servers]), flush=True)
channel = grpc.insecure_channel(f"xds:///{target}")
call = channel.unary_unary("/test.Who/Are")
for _ in sys.stdin:
    try:
        print(call(b"", wait_for_ready=True, timeout=30).decode(), flush=True)
    except grpc.RpcError as error:
        print(f"{error.code().name} {error.details()}", flush=True)
