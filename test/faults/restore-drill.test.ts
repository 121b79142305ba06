/** The disk is lost under load, and the database is restored from a backup: what docs/operate/backup.md describes, with counts. */
import { randomBytes } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { connectionTo, serverPid, setUpDataDirectories } from '../support/data-directory.ts'
import { addTenant, openDatabase } from '../support/database.ts'
import { DEBIAN_POSTGRES, hasDebianPostgres, startCluster } from '../support/debian-postgres.ts'
import { startReceiver } from '../support/endpoints.ts'
import { NO_LIMITS, runProgramAsync, startHealthy, temporaryDirectory } from '../support/process.ts'
import { copyOfReceiver, RestoreBooks } from '../support/restore-books.ts'

const createDataDirectory = setUpDataDirectories()
const hasServers = hasDebianPostgres('backups with pg_dump are')

/** A database, how it is lost, and the variables of the one that replaces it. */
const KINDS = {
  embedded: async () => {
    const DATA_DIR = createDataDirectory()
    const lose = async () => {
      process.kill(serverPid(DATA_DIR), 'SIGKILL')
      rmSync(DATA_DIR, { recursive: true, force: true })
    }
    return { lost: { DATA_DIR }, restored: { DATA_DIR }, target: connectionTo(DATA_DIR), lose }
  },
  'a server of its own': async () => {
    const [lost, fresh] = [await startCluster(), await startCluster()]
    const PATH = `${DEBIAN_POSTGRES}:${process.env.PATH}`
    const lose = () => lost.stop()
    const withPassword = ({ url }: { url: string }) => url.replace('postgres@', 'postgres:a%2Fsecret%26@')
    const [from, to] = [lost, fresh].map((server) => ({ DATABASE_URL: withPassword(server), PATH }))
    return { lost: from, restored: to, target: lost.url, lose }
  },
}

it.each(Object.keys(KINDS) as Array<keyof typeof KINDS>)(
  'a restored database (%s) has everything from before the backup and no erased person, and the copies of its clients agree with it',
  async (kind) => {
    if (kind !== 'embedded' && !hasServers) return
    const directory = temporaryDirectory()
    const ledger = join(directory, 'erasures')
    mkdirSync(ledger)
    const setUp = await KINDS[kind]()
    const keys = `2026:${randomBytes(32).toString('base64')}`
    const common = { SECRETS_KEYS: keys, ERASURE_LEDGER: ledger, ...NO_LIMITS }
    let env: Record<string, string> = { ...common, ...setUp.lost }
    const command = async (...args: string[]) => {
      const { status, stdout, stderr } = await runProgramAsync([...args, '--json'], env)
      expect(status, stderr).toBe(0)
      return JSON.parse(stdout)
    }
    let lost = await startHealthy(env)
    const database = openDatabase(setUp.target)
    const tenant = await addTenant(database)
    await database.close()
    const receiver = await startReceiver()
    const endpoint = await command(
      ...['endpoints', 'add', '--account', String(tenant.accountId), '--url', receiver.url],
      ...['--format', 'members', '--allow-private-network'],
    )
    const books = new RestoreBooks(tenant)
    books.url = lost.url
    const grows = async (people: number) => {
      const target = books.ids.size + people
      await expect.poll(() => books.ids.size).toBeGreaterThan(target)
      await books.feed()
    }

    const { id: client } = await command('clients', 'add')

    // Load, a backup, more load, and a revocation.
    let stop = books.startLoad()
    await grows(100)
    const acknowledged = new Map(books.updates)
    const backup = join(directory, 'backup')
    if (kind === 'embedded') {
      await stop()
      lost.child.kill('SIGTERM')
      await lost.exited
    }
    await command('backup', backup)
    for (const name of readdirSync(join(backup, 'data')))
      expect(statSync(join(backup, 'data', name)).mode & 0o077, name).toBe(0)
    expect(readFileSync(join(backup, 'manifest.json'), 'utf8')).not.toContain('secret')
    if (kind === 'embedded') {
      lost = await startHealthy(env)
      books.url = lost.url
      stop = books.startLoad()
    }
    await command('clients', 'revoke', client)
    await grows(100)
    await stop()
    await books.feed()

    const hasRevocations = () =>
      readdirSync(ledger).some((name) => /^client /m.test(readFileSync(join(ledger, name), 'latin1')))
    await expect.poll(hasRevocations, { timeout: 120_000 }).toBe(true)

    // The disk is lost.
    lost.child.kill('SIGKILL')
    await setUp.lose()
    await lost.exited
    env = { ...common, ...setUp.restored }

    // The restore. Receivers empty their copies.
    const { membersEndpoints, revived } = await command('restore', backup)
    expect(membersEndpoints).toEqual([endpoint.id])
    expect(revived).toMatchObject([{ command: `oa-audience clients revoke ${client}` }])
    expect((await command('clients', 'list')).find(({ id }: { id: string }) => id === client).status).toBe(
      'active',
    )
    const refused = await runProgramAsync(['serve'], env)
    expect(refused.stderr).toContain('oa-audience erasures reapply')
    expect(refused.status).toBe(1)
    expect((await command('erasures', 'reapply')).erasures).toBeGreaterThan(0)
    receiver.received.length = 0
    const service = await startHealthy(env)
    books.url = service.url
    await command('endpoints', 'resend', endpoint.id, '--rate', '500')

    // More load.
    const lastLost = new Set(books.ids.keys())
    stop = books.startLoad()
    await grows(50)
    await stop()
    await books.feed()

    const { members, copy } = await books.present()
    const tagsOf = new Map(members.map(({ userId, tags }) => [userId, tags]))
    const missing = [...acknowledged].filter(([userId, updates]) => {
      if (books.erased.has(userId)) return false
      const [tag = 'update0'] = tagsOf.get(userId) ?? ['missing']
      return !(Number(tag.slice('update'.length)) >= updates)
    })
    expect(missing).toEqual([])
    expect(members.filter(({ userId }) => books.erased.has(userId))).toEqual([])
    expect(books.idsGivenTwice).toEqual([])
    expect(lastLost.size).toBeGreaterThan(200)
    await expect.poll(() => copyOfReceiver(receiver.received)).toEqual(copy)
    expect(books.copy).toEqual(copy)
    expect(books.restarts).toBe(1)
  },
)
