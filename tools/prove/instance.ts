/**
 * The program that `oa-audience prove` loads and kills: a service that receives deliveries of one account and does nothing else.
 * The database may hold real accounts, so nothing runs beside requests: no maintenance, no checks, no profiles, no endpoints, no
 * migrations. It is a program of its own, because a service must not be configurable to do so little.
 *
 * Its argument is the id of the account. It ends when its standard input does, so it never outlives the process that started it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { createApp } from '../../src/app.ts'
import { readConfig } from '../../src/config/config.ts'
import { FatalError } from '../../src/errors.ts'
import { deliveryPaths } from '../../src/line-api/line-signature.ts'
import { openForService } from '../../src/postgres/pool/open.ts'
import { requireMigrated } from '../../src/postgres/schema/migrate.ts'

/** For the embedded server to stop, which takes 7 s at most. A connection that the proof has cut may not end. */
const RELEASE_TIMEOUT_MS = 8_000

const config = readConfig()
const [, , accountId = ''] = process.argv
if (config.database.kind === 'none') throw new FatalError('DATABASE_URL is none')

const ignored = () => undefined
const opening = openForService(config.database, { info: ignored, warn: ignored }, async (database) => {
  await requireMigrated(database)
  return []
})
// A process that owns the embedded server stops it when it exits.
const exit = () => void opening.finally(() => process.exit())
process.stdin.on('end', exit).on('error', exit).resume()

const { database, ready, close } = await opening
ready.catch(() => process.exit(1))
const app = await createApp({ config, database, log: { write: ignored } })
const served = ['/api/health', ...deliveryPaths(accountId)]
app.addHook('onRequest', async (request, reply) => {
  if (!served.includes(request.url)) return reply.code(404).send()
})
process.once('SIGTERM', async () => {
  app.server.closeAllConnections()
  await app.close()
  await Promise.race([close(), sleep(RELEASE_TIMEOUT_MS)])
  process.exit()
})
await app.listen({ port: config.port, host: '127.0.0.1' })
