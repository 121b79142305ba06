/** `oa-audience setup`: everything that a first account needs. */
import { addFirstAccount } from '../accounts/organizations.ts'
import type { NewAccount } from '../accounts/provisioning.ts'
import { type Config, readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { ACCOUNTS, accountColumns, addressesOf } from '../operations/accounts.ts'
import type { InputOf } from '../operations/fields.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { makeMissingDatabase } from '../postgres/pool/open.ts'
import { examineReachability } from '../watch/reachability.ts'
import { baseUrlOf, warnAboutSecret, warnIfUnproven, withFields } from './accounts-commands.ts'
import { type CliCommand, onDatabase } from './command.ts'
import { io, print, printError, printOne, styled } from './io.ts'
import { inputOf, openLineApi, wordsOf } from './operation-commands.ts'
import { ask, type Question } from './questions.ts'

type Answers = { organizationName: string; name: string; channelId: string; channelSecret: string }

/** Required values. Without the channel's id and secret, no delivery is accepted and no profile is fetched. */
const QUESTIONS: Array<Question & { name: keyof Answers }> = [
  { name: 'organizationName', text: 'Name of the organization', isSecret: false },
  { name: 'name', text: 'Name of the official account', isSecret: false },
  { name: 'channelId', text: 'Channel ID (LINE Developers Console, Basic settings)', isSecret: false },
  { name: 'channelSecret', text: 'Channel secret (on the same page; not shown)', isSecret: true },
]

export function setupCommand(program: CliCommand): void {
  withFields(program.command('setup'))
    .description(
      'add an organization, an official account, a client and its key, and print what to enter where; asks for what no option gives',
    )
    .option('--organization-name <name>', 'name of the organization that owns the account')
    .prints(async (options: Partial<Answers>) => {
      const { organizationName } = options
      const fields = (await inputOf(ACCOUNTS.update, options)) as Partial<Answers>
      const given = { ...fields, ...(organizationName !== undefined && { organizationName }) }
      requireAnswerable(given)
      const made = await makeMissingDatabase(readConfig(io.env).database)
      if (made !== null)
        printError(`oa-audience: made a database in ${made}. Start the service with this DATA_DIR.`)
      return onDatabase(async (database) => add(database, await complete(given)))
    }, introduce)
}

function requireAnswerable(given: Partial<Answers>): void {
  for (const { name } of QUESTIONS)
    if (given[name]?.trim() === '') throw new FatalError(`--${wordsOf(name)} must not be empty.`)
  const missing = missingOf(given).map(({ name }) => `--${wordsOf(name)}`)
  if (missing.length > 0 && io.stdin.isTTY !== true) {
    const verb = missing.length === 1 ? 'is' : 'are'
    throw new FatalError(
      `${missing.join(', ')} ${verb} missing. Give all options, or run the command on a terminal.`,
    )
  }
}

const missingOf = (given: Partial<Answers>) => QUESTIONS.filter(({ name }) => given[name] === undefined)

async function complete(given: Partial<Answers>): Promise<Answers> {
  const questions = missingOf(given)
  return { ...given, ...(questions.length === 0 ? {} : await ask(questions)) } as Answers
}

async function add(database: Database, { organizationName, ...fields }: Answers) {
  warnAboutSecret(fields)
  const { unproven, ...checked } = ACCOUNTS.update.check(fields) as InputOf<typeof ACCOUNTS.update.input>
  const columns = accountColumns(checked) as NewAccount
  const parts = { database, lineApi: unproven ? null : openLineApi(readConfig(io.env)) }
  const added = await addFirstAccount(parts, commandActor(), organizationName, columns)
  const { organizationId, account, client, key } = added
  warnIfUnproven(added.proof === 'unproven')
  return {
    organizationId,
    accountId: account.id,
    oaHash: account.oaHash,
    trackingKey: account.trackingKey,
    ...addressesOf(baseUrlOf(readConfig(io.env)), account.id, account.oaHash),
    clientId: client.clientId,
    clientSecret: client.clientSecret,
    key: key.key,
  }
}

async function introduce(added: Awaited<ReturnType<typeof add>>): Promise<void> {
  const { organizationId, accountId, webhookUrl, callbackUrl, trackingKey, ...credentials } = added
  const config = readConfig(io.env)
  const base = baseUrlOf(config)
  const step = (title: string, ...lines: string[]) => {
    print(`\n${styled('bold', title)}`)
    for (const line of lines) print(`  ${line}`)
  }
  printOne({ organization: organizationId, account: accountId, trackingKey })
  step(
    'LINE Developers Console, tab "Messaging API": set the webhook URL, switch on "Use webhook" and "Webhook redelivery"',
    webhookUrl,
  )
  step('Support chat: add a webhook with this URL', callbackUrl)
  const event = { writeKey: trackingKey, type: 'page', anonymousId: 'visitor-1', properties: { path: '/' } }
  step(
    'Web pages: send tracking events with the tracking key',
    `curl -sS ${quote(`${base}/api/tracking`)} -H 'content-type: application/json' -d ${quote(JSON.stringify(event))}`,
  )
  const headers = [
    `x-client-id: ${credentials.clientId}`,
    `x-client-secret: ${credentials.clientSecret}`,
    `x-api-key: ${credentials.key}`,
  ]
  step('Clients: send these three headers. The secret and the key are not shown again.', ...headers)
  const options = headers.map((header) => `-H ${quote(header)}`).join(' ')
  step('List the audience', `curl -sS ${quote(`${base}/api/audience`)} ${options}`)
  await showReachability(accountId, config)
}

/** Prints what keeps LINE from reaching the service. It does not fail, because the account has been added. */
async function showReachability(id: bigint, { publicUrl }: Pick<Config, 'publicUrl'>): Promise<void> {
  if (publicUrl === null) {
    print(
      `\nPUBLIC_URL is not set, so these addresses work on this machine only. Set it to the https:// address at which LINE reaches this service, and run "oa-audience accounts show ${id}". docs/first-account.md shows three ways to get such an address: a server with Caddy, a tunnel, or an existing proxy.`,
    )
    return
  }
  const { message, fix } = await examineReachability(publicUrl)
  print(`\n${styled('bold', 'Can LINE reach this service?')}`)
  print(`  ${message} ${fix}`)
  print(`  When the webhook URL is set, run "oa-audience accounts verify ${id} --test-webhook".`)
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}
