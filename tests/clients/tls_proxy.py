"""TLS in front of a server: python3 tls_proxy.py CERTIFICATE KEY HOST PORT. Writes the port that it listens on.

It looks at nothing that passes, so that what works through it works with TLS alone. Ends with its standard input.
"""

import asyncio
import ssl
import sys


async def pump(reader, writer):
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # One side has gone; the other is told by the end of what is written to it.
    finally:
        writer.close()


async def main(certificate, key, host, port):
    async def pass_on(reader, writer):
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, back), pump(there, writer))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main(*sys.argv[1:]))
