/** Endpoints that follow the changed members of many accounts. test/faults/many-endpoints.test.ts measures endpoints that fail. */
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { openDatabase } from './database.mjs'
import { startService, urlOf } from './targets.mjs'

/** Three `members` endpoints per account, whose members are loaded at the same moment. */
export async function runMany({ smoke }) {
  const { accounts, members } = smoke ? { accounts: 2, members: 10 } : { accounts: 200, members: 600 }
  const { server, database, close } = await openDatabase()
  let received = 0
  const receiver = createServer((request, response) => {
    received += 1
    request.resume().on('end', () => response.end())
  }).listen(0, '127.0.0.1')
  await until(() => receiver.listening)
  const service = await startService({ DATABASE_URL: urlOf(server) })
  try {
    const organizationId = await addOrganization(database, 'bench')
    for (let no = 0; no < accounts; no += 1) {
      const { id } = await addAccount(database, organizationId, { name: 'bench' })
      await database.query(
        `insert into endpoint (channel_oa_id, url, format, allow_private_network)
         select $1, $2, 'members', true from generate_series(1, 3)`,
        [id, `http://127.0.0.1:${receiver.address().port}/`],
      )
    }
    await measureFeeds(database, accounts, members, () => received)
  } finally {
    service.child.kill('SIGKILL')
    receiver.close()
    receiver.closeAllConnections()
    await close()
  }
}

async function measureFeeds(database, accounts, members, received) {
  const wanted = accounts * members * 3
  // A session has no time limit for its statements.
  await database.session((session) =>
    session.query(
      `insert into audience_member (channel_oa_id, organization_id, user_id)
       select a.id, a.organization_id, 'U' || md5(i::text) from official_account a, generate_series(1, $1::int) i`,
      [members],
    ),
  )
  const startedAt = performance.now()
  const perSecond = (count) => Math.round((count * 1000) / (performance.now() - startedAt))
  await until(async () => {
    const [row] = await database.query(
      `select count(*)::int as behind from endpoint p
        where (change_position, change_member) < (select change, id from audience_member
                where channel_oa_id = p.channel_oa_id order by change desc, id desc limit 1)`,
    )
    return row.behind === 0
  }, 1_000)
  console.log(`  ${wanted} changes for ${accounts * 3} endpoints: stored for them at ${perSecond(wanted)}/s`)
  await until(() => received() >= wanted)
  console.log(`  received at ${perSecond(wanted)}/s`)
}

async function until(isDone, everyMs = 5) {
  while (!(await isDone())) await sleep(everyMs)
}
