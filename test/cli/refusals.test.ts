/** A command that the database refuses names the row that does not exist or the value that is taken, not a constraint. */
import { existsSync } from 'node:fs'
import { constants } from 'node:os'
import { Command } from 'commander'
import { expect, it } from 'vitest'
import { explain } from '../../src/cli/run.ts'
import { CONSTRAINTS } from '../../src/operations/constraint-sentences.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'

const { database, env } = await createTestDatabase()
const tenant = await addTenant(database)

it('warns of a channel secret that LINE would not issue, and stores it', async () => {
  const { accountId } = await addTenant(database)
  const update = (secret: string) =>
    runCommand(['accounts', 'update', String(accountId), '--channel-secret', secret], env)
  expect(await update('8c570fa6dd201bb328f1c1eac23a96d8')).toMatchObject({ status: 0, stderr: '' })
  const { status, stderr } = await update('abc')
  expect([status, stderr]).toEqual([
    0,
    expect.stringMatching(/^oa-audience: warning: the channel secret is not 32 digits [^\n]+\n$/),
  ])
  expect(stderr).not.toContain('abc')
})

it.each(['nonsense', `U${'A'.repeat(32)}`, `u${'a'.repeat(32)}`, `U${'a'.repeat(31)}`])(
  'refuses the bot user id %s, by add and by update',
  async (id) => {
    const add = ['accounts', 'add', '--organization', String(tenant.organizationId), '--name', 'x']
    for (const args of [add, ['accounts', 'update', String(tenant.accountId)]])
      expect(await refusal([...args, '--bot-user-id', id])).toMatch(
        /--bot-user-id must be U and 32 digits 0-9 a-f/,
      )
  },
)

/** The tables that commands and other programs write. */
const TABLES = 'organization official_account api_client api_key audience_member endpoint segment'.split(' ')

const refusal = async (args: string[]) => {
  const { status, stdout, stderr } = await runCommand(args, env)
  expect(status).toBe(1)
  expect(stdout).toBe('')
  expect(stderr).toMatch(/^oa-audience: [^\n]+\n$/)
  for (const name of Object.keys(CONSTRAINTS)) expect(stderr).not.toContain(name)
  return stderr
}

it.each([
  [['accounts', 'add', '--organization', '99', '--name', 'x'], 'organization 99 does not exist'],
  [['keys', 'add', '--client', '1', '--account', '99'], 'account 99 does not exist'],
  [['keys', 'add', '--client', '99', '--account', '1'], 'client 99 does not exist'],
  [
    ['endpoints', 'add', '--account', '99', '--url', 'https://crm.example.com/x'],
    'account 99 does not exist',
  ],
])('%j names the row that does not exist', async (args, message) => {
  expect(await refusal(args)).toContain(`${message}. Run "oa-audience`)
})

it.each([
  [['activity', 'list', '--since', 'tomorrow'], '--since must be a time such as'],
  [
    ['audience', 'export', '--account', '1', '--relationship', 'x'],
    '--relationship must be one of following',
  ],
  [
    ['operators', 'add', '--email', 'e@example.com', '--role', 'viewer', '--organization', '9'.repeat(19)],
    '--organization must be between -9223372036854775808 and',
  ],
  [['audience', 'export', '--account', '1', '--tag', ''], '--tag must not be empty'],
])('%j names the option, not the field of the API', async (args, message) => {
  await addTenant(database)
  expect(await refusal(args)).toContain(message)
})

it.each([
  [['backup', '-1'], 'argument'],
  [['restore', '-1'], 'argument'],
  [['backup', ''], 'argument'],
  [['audience', 'export', '--account', '1', '--output', '--json'], 'option'],
  [['events', 'export', '--account', '1', '--from', '2026-01-01', '--output', '--json'], 'option'],
])('%j takes no mistyped option for a path', async (args, kind) => {
  const { status, stderr } = await runCommand(args, env)
  expect(status).toBe(1)
  expect(stderr).toMatch(new RegExp(`^error: .*${kind}.* It is not a path`))
  expect(existsSync(args.at(-1) || '-1')).toBe(false)
})

it('explains a file and a port that cannot be used, and what to do', () => {
  const denied = { errno: -constants.errno.EACCES, code: 'EACCES', syscall: 'open', path: '/root/ids.txt' }
  expect(explain(Object.assign(new Error(), denied), new Command())).toEqual([
    '/root/ids.txt cannot be used: permission denied (EACCES). Run the command as a user who may use it, or choose another one.',
  ])
  const taken = { errno: -constants.errno.EADDRINUSE, code: 'EADDRINUSE', syscall: 'listen' }
  const listening = { ...taken, address: '127.0.0.1', port: 4100 }
  expect(explain(Object.assign(new Error(), listening), new Command())).toEqual([
    'port 4100 on 127.0.0.1 cannot be used: address already in use (EADDRINUSE). Stop the other process, or choose another port.',
  ])
})

it.each([
  ['--oa-hash', () => tenant.oaHash, 'another account already has this oa_hash'],
  ['--tracking-key', () => tenant.trackingKey, 'another account already has this tracking key'],
])('a taken %s is named without its value, by add and by update', async (option, taken, message) => {
  const other = await addTenant(database)
  const add = ['accounts', 'add', '--organization', String(tenant.organizationId), '--name', 'x']
  for (const args of [add, ['accounts', 'update', String(other.accountId)]]) {
    const line = await refusal([...args, option, taken()])
    expect(line).toContain(message)
    expect(line).not.toContain(taken())
  }
})

/** Members are added by events, which know no such fault, and random credentials differ. */
const NOT_BY_COMMANDS = [
  'api_client_client_id_key',
  'api_key_api_client_id_key_key',
  'audience_member_account',
  'audience_member_user',
  'official_account_id_organization_id_key',
]

it('has a sentence for every foreign key, unique index and constraint trigger that a command may violate', async () => {
  const rows = await load<{ name: string }>(
    database,
    `select f.conname as name
       from pg_constraint f join pg_class c on c.oid = f.conrelid
      where f.contype in ('f', 't') and c.relnamespace = 'public'::regnamespace and c.relname = any ($1)
     union
     select i.relname
       from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class c on c.oid = x.indrelid
      where x.indisunique and not x.indisprimary and c.relnamespace = 'public'::regnamespace and c.relname = any ($1)
      order by 1`,
    [TABLES],
  )
  const byTrigger = ['official_account_oa_hash_retired', 'official_account_tracking_key_retired']
  const names = [...rows.map(({ name }) => name), ...byTrigger, ...Object.keys(CONSTRAINTS)]
  const expected = [...Object.keys(CONSTRAINTS), ...NOT_BY_COMMANDS]
  expect([...new Set(names)].sort()).toEqual(expected.sort())
})
