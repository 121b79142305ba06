/**
 * Writes a file of test/fixtures for the present version: what a database holds after the demo and some commands, and the migrations that
 * made its tables. `node scripts/upgrade-fixture.mjs` runs once per release. test/postgres/upgrade.test.ts upgrades each of these files, and
 * has the passwords and keys that are used here.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { serviceVersion } from '../dist/src/config/package.js'
import { hashPassword } from '../dist/src/operators/passwords.js'
import { EmbeddedServer } from '../dist/src/postgres/embedded/server.js'
import { readMigrations } from '../dist/src/postgres/schema/migrate.js'
import { TextDatabase } from '../dist/tools/text-database.js'

const MAIN = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url))
const directory = mkdtempSync(join(tmpdir(), 'oa-audience-fixture-'))
const DATA_DIR = join(directory, 'demo')

/** The demo stores secrets as plain text. The commands after it encrypt what they store. */
const SECRETS_KEYS = `fixture:${Buffer.alloc(32, 7).toString('base64')}`
const PASSWORD = 'six unrelated words of this test'
const SESSION = 'a-session-of-the-fixture'.padEnd(43, '-')
/** Who was erased, and of whom an erasure is not complete. */
const [ERASED, LEAVING] = ['e', 'f'].map((digit) => `U${digit.repeat(32)}`)

/** Runs a command. Returns what it printed as JSON. */
function run(args, dataDir = DATA_DIR, secrets = { SECRETS_KEYS }) {
  const env = { PATH: process.env.PATH, DATA_DIR: dataDir, PORT: '0', ...secrets }
  const output = execFileSync(process.execPath, [MAIN, ...args, '--json'], { env, encoding: 'utf8' })
  return args[0] === 'demo' ? output : JSON.parse(output)
}

/** Tables, and their columns that are not generated. */
const SELECT_TABLES = `
  select c.relname as name, string_agg(quote_ident(attname), ', ' order by attnum) as columns,
         bool_or(attidentity <> '') as "hasIdentity"
    from pg_class c join pg_attribute on attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = ''
   where c.relkind in ('r', 'p') and not c.relispartition and c.relnamespace = 'public'::regnamespace
     and c.relname !~ '^schema_'
   group by c.relname, c.oid order by c.oid`

/** What the demo and the commands leave empty: work that is not done, of each table that has some. The account of the demo is the first. */
const ADD_OPEN_WORK = `
  insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, created_at, replies, failed_at, status, answer, attempts)
  select p.channel_oa_id, p.id, array[e.key], e.received_at, true, d.failed_at, d.status, d.answer, d.attempts
    from endpoint p, (select * from event where kind = 'follow' and payload is not null order by id limit 1) e,
         (values (null::timestamptz, null::int, null, 0), (now(), 400, 'no', 5)) as d (failed_at, status, answer, attempts)
   where p.status = 'paused';
  insert into endpoint_attempt (endpoint_id, slot, started_at, delivery_id, attempt, status, duration_ms, events, reason)
  select endpoint_id, 1, now(), 1, 1, 200, 5, 1, 'event' from endpoint_answer;
  insert into unsent_message (channel_oa_id, message_id) values (1, 'unsent');
  insert into line_audience (channel_oa_id, segment_id, name, audience_group_id, status)
  select channel_oa_id, id, name || ' (2026-11-25)', 7, 'ready' from segment;

  insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload)
  select channel_oa_id, source, kind, gen_random_uuid(), occurred_at, '${LEAVING}', replace(payload, user_id, '${LEAVING}')
    from event where kind = 'follow' and payload is not null limit 1;
  insert into pending_erasure (channel_oa_id, organization_id, member_id, user_id, last_event_id)
  select channel_oa_id, 1, 7, user_id, id from event where user_id = '${LEAVING}';
  update event set failure = 'for once' where kind = 'follow' and user_id <> '${LEAVING}';
  insert into database_restore (backup_at, restored_at) values ('2026-11-20T00:00:00Z', '2026-11-20T01:00:00Z');

  insert into job (kind, channel_oa_id, organization_id, actor_kind, actor, parameters, total, status, finished_at)
  select kind, account, 1, 'command', 'somebody', parameters::jsonb, 1, status, case status when 'done' then now() end
    from (values
      ('members.tag', 1, '{"add":["old"],"remove":[],"matching":{}}', 'done'),
      ('members.tag', 1, '{"add":["upgraded"],"remove":[],"filters":{"tag":["vip"]},"matching":{"tag":["vip"]},"untilId":"9223372036854775807"}',
       'running'),
      ('members.import', 1, '{"format":"ndjson"}', 'running'),
      ('events.retry', 1, '{"accountId":"1","failure":"for once"}', 'running'),
      ('endpoint.replay', 1, '{"endpointId":"1","from":"2026-01-01T00:00:00.000Z","to":"2100-01-01T00:00:00.000Z","events":null,"rate":50}',
       'running'),
      ('endpoint.resend', 1, '{"endpointId":"3","filters":{},"matching":{},"untilId":"9223372036854775807","rate":50}', 'running'),
      ('accounts.change', null, '{"change":"mute","settings":{"until":"2100-01-01T00:00:00.000Z","reason":"by a job"}}', 'running')
    ) as started (kind, account, parameters, status);
  insert into job_file (job_id, position, bytes)
  select j.id, 0, convert_to('{"userId":"' || m.user_id || '","attributes":{"imported":true}}', 'UTF8')
    from job j, (select user_id from audience_member where tags = '{}' order by id limit 1) m where j.kind = 'members.import';
  update job set total = (select octet_length(bytes) from job_file) where kind = 'members.import';
  insert into changed_account (job_id, channel_oa_id)
  select j.id, a.id from job j, official_account a where j.kind = 'accounts.change' and a.name = 'Broken';

  update official_account set suspended = true where name in ('Muted', 'Broken');
  update account_check k set status = 'broken', problems = '[{"reason":"suspended","status":"broken","facts":{}}]',
                             muted_until = case a.name when 'Muted' then timestamptz '2100-01-01' end,
                             mute_reason = case a.name when 'Muted' then 'closed' end
    from official_account a where a.id = k.channel_oa_id and a.name in ('Muted', 'Broken');
  insert into notification (notification_channel_id, kind, reason)
  select id, 'problem', 'suspended' from notification_channel where format = 'webhook';
  insert into notification_account (notification_id, channel_oa_id, before, after, problem, since)
  select n.id, a.id, 'ok', 'broken', '{"reason":"suspended","status":"broken","facts":{}}', now()
    from notification n, official_account a where a.name = 'Broken';

  insert into account_day (channel_oa_id, day, members) values (1, '2026-11-23', 3) on conflict do nothing;
  insert into source_day values (1, '2026-11-23', 'shop', 1, 0, 0, 0, 1, 1);
  insert into member_touch (channel_oa_id, user_id, occurred_at, key, source)
  select channel_oa_id, user_id, followed_at, gen_random_uuid(), 'shop' from audience_member where followed_at is not null;

  update operator set invitation_expires_at = '2100-01-01' where invitation_hash is not null`

/** $1 password hash text, $2 hash of the session bytea */
const JOIN_OWNER = `
  with joined as (
    update operator set password_hash = $1, invitation_hash = null, signed_in_at = now() where role = 'owner' returning id)
  insert into operator_session (id_hash, operator_id, expires_at) select $2, id, '2100-01-01' from joined`

const dollars = '$fixture$'

async function textOf(session) {
  const statements = []
  for (const { name, columns, hasIdentity } of await session.query(SELECT_TABLES)) {
    const rows = await session.query(`select to_jsonb(t)::text as row from ${name} t order by 1`)
    if (rows.length === 0) continue
    const json = `[\n${rows.map(({ row }) => row).join(',\n')}\n]`
    const values = `jsonb_populate_recordset(null::${name}, ${dollars}${json}${dollars})`
    const overriding = hasIdentity ? ' overriding system value' : ''
    statements.push(`delete from ${name};`)
    statements.push(`insert into ${name} (${columns})${overriding}\nselect ${columns} from ${values};`)
    if (hasIdentity)
      statements.push(
        `select setval(pg_get_serial_sequence('${name}', 'id'), (select max(id) from ${name}));`,
      )
  }
  const migrations = readMigrations().map(({ name, checksum }) => `-- migration ${name} ${checksum}`)
  return [...migrations, ...statements, ''].join('\n')
}

try {
  run(['demo', '--once'], directory, {})
  const [{ id: account }] = run(['accounts', 'list'])
  const condition = '{"tagsAll":["vip"],"lastSeenAfter":"30d"}'
  run(['segments', 'add', '--account', account, '--name', 'Guests', '--condition', '{"tagsNone":["vip"]}'])
  const url = 'https://tool.example.com/webhook'
  const { id } = run([
    'endpoints',
    'add',
    '--account',
    account,
    '--url',
    url,
    '--replies',
    '--condition',
    condition,
  ])
  run(['endpoints', 'pause', id])
  run(['accounts', 'update', account, '--tracking-key', 'the second key of the demo'])
  for (const [number, name] of ['Encrypted', 'Muted', 'Broken'].entries()) {
    const channel = [
      '--channel-id',
      `200000000${number}`,
      '--channel-secret',
      String(number).repeat(32),
      '--unproven',
    ]
    run(['accounts', 'add', '--organization', '1', '--name', name, ...channel])
  }
  run(['endpoints', 'add', '--account', '2', '--url', 'https://crm.example.com/', '--format', 'members'])
  for (const name of ['Revoked', 'Rotated', 'Without a key', 'Removed'])
    run(['clients', 'add', '--account', account, '--name', name])
  const idsOf = (list) => Object.fromEntries(list.map((each) => [each.name, each.id]))
  const clients = idsOf(run(['clients', 'list']))
  run(['clients', 'revoke', clients.Revoked])
  run(['clients', 'rotate', clients.Rotated])
  run(['clients', 'remove', clients.Removed, '--yes'])
  const keys = run(['keys', 'list'])
  run(['keys', 'revoke', keys.find(({ client }) => client === clients['Without a key']).id])
  run(['members', 'erase', '--account', account, '--user-id', ERASED])
  for (const [name, role, ...organizations] of [
    ['Ann', 'manager'],
    ['Olga', 'owner'],
    ['Vic', 'viewer', '--organization', '1'],
    ['Dan', 'manager'],
  ])
    run([
      'operators',
      'add',
      '--email',
      `${name.toLowerCase()}@example.com`,
      '--role',
      role,
      '--name',
      name,
      ...organizations,
    ])
  run(['operators', 'disable', idsOf(run(['operators', 'list'])).Dan])
  for (const [format, target] of [
    ['slack', 'https://chat.example.com/hook'],
    ['webhook', 'https://watch.example.com/hook'],
  ])
    run(['notifications', 'add', '--name', `Chat of ${format}`, '--format', format, '--target', target])
  const server = new EmbeddedServer(DATA_DIR)
  await server.own(() => undefined)
  const database = new TextDatabase(server.connection, () => undefined)
  const text = await database.session(async (session) => {
    await session.query(ADD_OPEN_WORK)
    const hash = createHash('sha256').update(SESSION).digest()
    await session.query(JOIN_OWNER, [await hashPassword(PASSWORD), hash])
    return textOf(session)
  })
  await database.close()
  await server.stop()
  const file = fileURLToPath(new URL(`../test/fixtures/${serviceVersion}.sql`, import.meta.url))
  writeFileSync(file, text.replaceAll(`${userInfo().username}@${hostname()}`, 'somebody@example'))
  console.log(`${file}: ${Math.round(text.length / 1024)} KiB`)
} finally {
  rmSync(directory, { recursive: true, force: true })
}
