/** Listens for requests, and explains why a port cannot be used. */
import type { FastifyInstance } from 'fastify'
import type { Config } from '../config/config.ts'
import { FatalError } from '../errors.ts'

export class PortTaken extends FatalError {}

export async function listen(app: FastifyInstance, config: Pick<Config, 'host' | 'port'>): Promise<void> {
  const { host, port } = config
  const listenTextResolver = (address: string) => `listening on ${address}`
  await app.listen({ port, host, listenTextResolver }).catch((error) => {
    throw explainListen(error, config)
  })
}

function explainListen(
  error: Error & { code?: string },
  { host, port }: Pick<Config, 'host' | 'port'>,
): FatalError {
  if (error.code === 'EADDRINUSE') {
    return new PortTaken(`PORT ${port} on ${host} is already in use. Stop the other process or set PORT.`)
  }
  if (error.code === 'EACCES') {
    return new FatalError(`PORT ${port} may not be used by this user. Set PORT to 1024 or more.`)
  }
  return new FatalError(
    `cannot listen on HOST ${host}, PORT ${port} (${error.code ?? error.message}). Set HOST to an address of this machine.`,
  )
}

export function localUrl(host: string, port: number): string {
  // A server that listens on every interface is reached on the loopback interface. `::` also accepts IPv4, and ::1 may be disabled.
  const name = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host
  return `http://${name.includes(':') ? `[${name}]` : name}:${port}`
}

/** Returns the body of a response, or the beginning of one that is longer than `maxBytes`. Stops reading then. */
export async function readStart(body: AsyncIterable<Uint8Array> | null, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body ?? []) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > maxBytes) break
  }
  return Buffer.concat(chunks).toString()
}
