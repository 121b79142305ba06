/**
 * Writes a file of test/fixtures for the present version: what a database holds after the demo and some commands, and the migrations that
 * made its tables. `node scripts/upgrade-fixture.mjs` runs once per release. test/postgres/upgrade.test.ts upgrades each of these files.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { serviceVersion } from '../dist/src/config/package.js'
import { EmbeddedServer } from '../dist/src/postgres/embedded/server.js'
import { readMigrations } from '../dist/src/postgres/schema/migrate.js'
import { TextDatabase } from '../dist/tools/text-database.js'

const MAIN = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url))
const directory = mkdtempSync(join(tmpdir(), 'oa-audience-fixture-'))
const DATA_DIR = join(directory, 'demo')

/** Runs a command. Returns what it printed as JSON. */
function run(args, dataDir = DATA_DIR) {
  const env = { PATH: process.env.PATH, DATA_DIR: dataDir, PORT: '0' }
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

/** What the demo and the commands leave empty: work that is not done, of each table that has some. */
const ADD_OPEN_WORK = `
  insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, replies)
  select p.channel_oa_id, p.id, array(select key from event where kind = 'follow' limit 1), true from endpoint p where p.status = 'paused';
  insert into job (kind, channel_oa_id, organization_id, actor_kind, actor, parameters, status, finished_at)
  select 'members.tag', id, organization_id, 'command', 'somebody', '{}', 'done', now() from official_account;
  insert into unsent_message (channel_oa_id, message_id) select id, 'unsent' from official_account;
  insert into line_audience (channel_oa_id, segment_id, name, audience_group_id, status)
  select channel_oa_id, id, name || ' (2026-11-25)', 7, 'ready' from segment;
  insert into notification (notification_channel_id, kind) select id, 'test' from notification_channel`

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
  run(['demo', '--once'], directory)
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
  run(['operators', 'add', '--email', 'ann@example.com', '--role', 'manager', '--name', 'Ann'])
  run([
    'notifications',
    'add',
    '--name',
    'Chat',
    '--format',
    'slack',
    '--target',
    'https://chat.example.com/hook',
  ])
  const server = new EmbeddedServer(DATA_DIR)
  await server.own(() => undefined)
  const database = new TextDatabase(server.connection, () => undefined)
  const text = await database.session(async (session) => {
    await session.query(ADD_OPEN_WORK)
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
