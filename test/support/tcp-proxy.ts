/** A proxy before the tests' PostgreSQL, which can be shut, be silent and open again. */
import { inject } from 'vitest'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { TcpProxy } from '../../tools/simulator/tcp-proxy.ts'
import { atEnd } from './at-end.ts'

/** It is shut. `address` is its host and port, `url` that of the database behind it. */
export async function startProxy({ user, database }: Connection) {
  const { host, port } = inject('postgres')
  const proxy = new TcpProxy({ path: `${host}/.s.PGSQL.${port}` })
  atEnd(() => proxy.close())
  const address = `127.0.0.1:${await proxy.listen()}`
  return { proxy, address, url: `postgres://${user}@${address}/${database}` }
}
