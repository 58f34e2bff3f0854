"""aiocoap's own OSCORE client, as a process of its own: `python -m tests.agent.coap.oscore.client FOLDER PORT`.

Reads bodies as hex digits, one a line, and prints the code and payload of each answer. FOLDER keeps its context.
"""

import asyncio
import sys
from pathlib import Path

from aiocoap import Context, Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from aiocoap.oscore import FilesystemSecurityContext  # type: ignore[import-untyped]


async def main(folder: Path, port: int) -> None:
    client = await Context.create_client_context(transports=["oscore", "udp6"])
    client.client_credentials[f"coap://[::1]:{port}/*"] = FilesystemSecurityContext(str(folder))
    for line in sys.stdin:
        message = Message(code=Code.POST, uri=f"coap://[::1]:{port}/e", payload=bytes.fromhex(line), content_format=60)
        answer = await client.request(message).response
        print(answer.code.dotted, answer.payload.decode(), flush=True)
    await client.shutdown()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
