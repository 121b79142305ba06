/** Faulty responses that the simulated platform sends on demand. */
import type { IncomingMessage, ServerResponse } from 'node:http'

export type Misbehaviour = (request: IncomingMessage, response: ServerResponse) => void

/** Null for an unknown name. Names that every object inherits, such as `constructor`, are unknown, too. */
export function misbehaviourOf(name: string): Misbehaviour | null {
  return Object.hasOwn(MISBEHAVIOURS, name) ? (MISBEHAVIOURS[name] ?? null) : null
}

export const MISBEHAVIOURS: Record<string, Misbehaviour> = {
  cut: (request) => request.socket.destroy(),
  error: (_, response) => response.writeHead(500).end('{"message":"Internal server error"}'),
  limit: (_, response) =>
    response.writeHead(429, { 'retry-after': '17' }).end('{"message":"Too many requests"}'),
  html: (_, response) =>
    response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>proxy</title>'),
  empty: (_, response) => response.writeHead(200).end('{}'),
  null: (_, response) => response.writeHead(200).end('null'),
  redirect: (_, response) => response.writeHead(302, { location: 'http://127.0.0.1:9/' }).end(),
  silent: () => undefined,
  half: (_, response) => void response.writeHead(200, { 'content-length': '100' }).write('{'),
  /** announces gzip, sends plain text and closes the connection; Node 20 never finishes reading such a body */
  garbled: (request) => request.socket.end('HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\nnot gzip'),
  endless: (_, response) => {
    response.writeHead(200)
    const more = () => !response.destroyed && response.write('x'.repeat(65_536), () => setImmediate(more))
    more()
  },
}

/** What the platform responds to revoked credentials. */
export const refuseCredentials: Misbehaviour = (_, response) =>
  response.writeHead(401).end('{"message":"Authentication failed"}')
