"""One connection of HTTP/3: a line of JSON for the connection, and one for each request of the standard input."""

import asyncio
import hashlib
import json
import ssl
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated
from cryptography.hazmat.primitives.serialization import Encoding

PATIENCE = 10


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.answers = {}
        self.ended = None

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.ended = event.reason_phrase or f"error {event.error_code}"
            for _, _, waiter in self.answers.values():
                if not waiter.done():
                    waiter.set_result({"closed": self.ended})
        for event in self.http.handle_event(event):
            headers, body, waiter = self.answers[event.stream_id]
            if isinstance(event, HeadersReceived):
                headers.update((name.decode(), value.decode()) for name, value in event.headers)
            elif isinstance(event, DataReceived):
                body.extend(event.data)
            if event.stream_ended and not waiter.done():
                status = int(headers.pop(":status"))
                waiter.set_result({"status": status, "headers": headers, "body": body.decode()})

    async def get(self, authority, path):
        if self.ended:
            return {"closed": self.ended}
        stream = self._quic.get_next_available_stream_id()
        waiter = asyncio.get_running_loop().create_future()
        self.answers[stream] = ({}, bytearray(), waiter)
        request = {":method": "GET", ":scheme": "https", ":authority": authority, ":path": path}
        self.http.send_headers(
            stream, [(name.encode(), value.encode()) for name, value in request.items()], end_stream=True
        )
        self.transmit()
        return await asyncio.wait_for(waiter, PATIENCE)


def tell(what):
    print(json.dumps(what), flush=True)


async def main(address, port, sni):
    tickets = []
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], server_name=sni, verify_mode=ssl.CERT_NONE
    )
    connecting = connect(
        address,
        port,
        configuration=configuration,
        create_protocol=Client,
        session_ticket_handler=tickets.append,
    )
    try:
        client = await asyncio.wait_for(connecting.__aenter__(), PATIENCE)
    except (ConnectionError, asyncio.TimeoutError) as error:
        tell({"refused": repr(error)})
        return
    certificate = client._quic.tls._peer_certificate
    tell({"certificate": hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()})
    lines = asyncio.get_running_loop()
    while line := await lines.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        answer = await client.get(request["authority"], request["path"])
        answer["early_data"] = [ticket.max_early_data_size or 0 for ticket in tickets]
        tell(answer)


asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
