/** GET /api/audience as a stream, by clients that read it as a test wants. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import type { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, type Tenant } from './database.ts'
import { loadMembers } from './load.ts'
import type { Service } from './service.ts'

/**
 * 5 pages of 1,000 members × 8 KB = 40 MB. While a client does not read, the service holds two pages, and the socket buffers of
 * both ends take up to 10 MB. So the last page has not been read from the database.
 */
export const LARGE = 5_000

export async function addLargeTenant(database: TextDatabase): Promise<Tenant> {
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, LARGE, { attributes: `jsonb_build_object('pad', repeat('x', 8000))` })
  return tenant
}

/** Opens a stream, and pauses it at its first bytes. */
export async function openStream(
  service: { url: string },
  { headers }: Pick<Tenant, 'headers'>,
): Promise<IncomingMessage> {
  const [response] = (await once(
    request(`${service.url}/api/audience`, {
      headers: { ...headers, accept: 'application/x-ndjson' },
      agent: false,
    }).end(),
    'response',
  )) as [IncomingMessage]
  await once(response, 'readable')
  return response
}

/** The lines that a paused stream still has. Throws if it is cut off. */
export async function readToEnd(response: IncomingMessage): Promise<Array<Record<string, unknown>>> {
  response.setEncoding('utf8')
  let text = ''
  for await (const chunk of response) text += chunk
  return Array.from(text.trimEnd().split('\n'), (line) => JSON.parse(line))
}

/** Sends the head of a request for CSV on a bare socket. */
export function sendHead(service: Service, { headers }: Tenant, httpVersion = '1.1'): Socket {
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
  const lines = Object.entries({ ...headers, accept: 'text/csv', host: 'localhost' }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  )
  socket.write(`GET /api/audience HTTP/${httpVersion}\r\n${lines.join('')}\r\n`)
  return socket
}

/** Sessions of the database that run a statement or hold a snapshot, besides the one that asks. */
export async function busySessions(database: TextDatabase): Promise<number> {
  const rows = await database.query(
    `select from pg_stat_activity where datname = current_database() and backend_type = 'client backend'
        and (state <> 'idle' or backend_xmin is not null) and pid <> pg_backend_pid()`,
  )
  return rows.length
}
