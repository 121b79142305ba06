/**
 * The kinds of pressure. Each function applies one and returns the function that ends it.
 *
 * `isFree`: the second account must not become slow. `waitsOnce`: it waits for the lock of the first one once, until that is flushed apart.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'

const READERS = 4
const FROZEN_MS = 1_000
const KILL_INTERVAL_MS = 500
const DISK_DELAY_US = 20_000
const TOO_MANY_CONNECTIONS = '53300'

async function connect(url) {
  const client = new pg.Client({ connectionString: url })
  // A session that is killed reports it here as well.
  client.on('error', () => undefined)
  await client.connect()
  return client
}

/** Runs statements in a transaction that stays open. */
async function hold(url, begin, statement, values) {
  const client = await connect(url)
  await client.query(begin)
  await client.query(statement, values)
  return async () => {
    await client.query('rollback')
    await client.end()
  }
}

const holdWrite = ({ url }) => hold(url, 'begin', `insert into other_program values ('held')`)

async function holdReaders({ url }) {
  const ends = []
  for (let i = 0; i < READERS; i += 1)
    ends.push(await hold(url, 'begin isolation level repeatable read', 'select count(*) from event'))
  return () => Promise.all(ends.map((end) => end()))
}

/** The load of the first account includes this person, who is not a member before the pressure. */
const holdPerson = ({ url, accounts: [{ id, organizationId, newPerson }] }) =>
  hold(
    url,
    'begin',
    'insert into audience_member (channel_oa_id, organization_id, user_id) values ($1, $2, $3)',
    [id, organizationId, newPerson],
  )

const holdAccount = ({ url, accounts: [{ id }] }) =>
  hold(url, 'begin', 'select from official_account where id = $1 for update', [id])

const lockTable = ({ url }) => hold(url, 'begin', 'lock table audience_member in exclusive mode')

async function killBackends({ url, service }) {
  const client = await connect(url)
  let isEnded = false
  let killed = 0
  const killing = (async () => {
    while (!isEnded) {
      const { rowCount } = await client.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and application_name like '%process ' || $1`,
        [service.pid],
      )
      killed += rowCount
      await sleep(KILL_INTERVAL_MS)
    }
  })()
  return async () => {
    isEnded = true
    await killing
    await client.end()
    if (killed === 0) throw new Error('no session of the service was killed')
  }
}

/** Opens sessions until the server refuses one. */
async function useConnections({ url }) {
  const clients = []
  for (;;) {
    try {
      clients.push(await connect(url))
    } catch (error) {
      if (error.code !== TOO_MANY_CONNECTIONS) throw error
      return () => Promise.all(clients.map((client) => client.end()))
    }
  }
}

async function freeze({ service }) {
  service.kill('SIGSTOP')
  await sleep(FROZEN_MS)
  service.kill('SIGCONT')
  return async () => undefined
}

/** A stand-in for a slow disk: each commit waits before it syncs. Commits that arrive meanwhile share the sync. */
async function slowCommits({ url }) {
  const client = await connect(url)
  const alter = async (change) => {
    await client.query(`alter system ${change} commit_delay${change === 'set' ? ` = ${DISK_DELAY_US}` : ''}`)
    await client.query(`alter system ${change} commit_siblings${change === 'set' ? ' = 0' : ''}`)
    await client.query('select pg_reload_conf()')
  }
  await alter('set')
  return async () => {
    await alter('reset')
    await client.end()
  }
}

export const KINDS = [
  { name: 'a writing transaction of another program', isFree: true, apply: holdWrite },
  { name: 'four repeatable-read readers', isFree: true, apply: holdReaders },
  { name: 'an uncommitted row of the same person', isFree: true, waitsOnce: true, apply: holdPerson },
  { name: 'a row lock on one account', isFree: true, waitsOnce: true, apply: holdAccount },
  { name: 'backends killed twice a second', isFree: false, apply: killBackends },
  { name: 'no free connection', isFree: true, apply: useConnections },
  { name: 'a table locked against writes', isFree: false, apply: lockTable },
  { name: 'the service frozen for a second', isFree: false, apply: freeze },
  { name: 'a slow disk (commit_delay 20 ms)', isFree: false, apply: slowCommits },
]
