/** `oa-audience setup`: everything that a first account needs. */
import type { Command } from 'commander'
import { type AddedFirstAccount, addFirstAccount } from '../accounts/first-account.ts'
import { readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { commandActor } from '../operators/actor.ts'
import { makeMissingDatabase } from '../postgres/pool/open.ts'
import { examineReachability } from '../watch/reachability.ts'
import {
  type AddressConfig,
  addressesOf,
  baseUrl,
  columnsOf,
  type Fields,
  type Proving,
  proverOf,
  SECRET_FLAGS,
  warnIfUnproven,
  withFields,
} from './account-fields.ts'
import { onDatabase, withJson } from './input.ts'
import { io, print, printError, printJson, printOne, styled } from './io.ts'
import { ask, type Question, readSecrets } from './questions.ts'

type Answers = Fields & { organizationName: string; name: string }
type Options = Partial<Answers> & Proving & { json?: boolean }

/** Required values. Without the channel's id and secret, no delivery is accepted and no profile is fetched. */
const QUESTIONS: Array<Question & { name: keyof Answers; flag: string }> = [
  {
    name: 'organizationName',
    flag: '--organization-name',
    text: 'Name of the organization',
    isSecret: false,
  },
  { name: 'name', flag: '--name', text: 'Name of the official account', isSecret: false },
  {
    name: 'channelId',
    flag: '--channel-id',
    text: 'Channel ID (LINE Developers Console, Basic settings)',
    isSecret: false,
  },
  {
    name: 'channelSecret',
    flag: '--channel-secret',
    text: 'Channel secret (on the same page; not shown)',
    isSecret: true,
  },
]

export function setupCommand(program: Command): void {
  withJson(withFields(program.command('setup')))
    .description(
      'add an organization, an official account, a client and its key, and print what to enter where; asks for what no option gives',
    )
    .option('--organization-name <name>', 'name of the organization that owns the account')
    .option('--name <name>', 'display name of the account')
    .action(async ({ json, unproven = false, ...options }: Options) => {
      const config = readConfig(io.env)
      const given = await readSecrets(options, SECRET_FLAGS)
      requireAnswerable(given)
      const made = await makeMissingDatabase(config.database)
      if (made !== null)
        printError(`oa-audience: made a database in ${made}. Start the service with this DATA_DIR.`)
      const added = await onDatabase(async (database) => {
        const { organizationName, ...fields } = await complete(given)
        const columns = { ...columnsOf(fields), name: fields.name }
        return addFirstAccount(
          { database, lineApi: proverOf({ unproven }) },
          commandActor(),
          organizationName,
          columns,
        )
      })
      warnIfUnproven(added.proof)
      if (json) printJson(summaryOf(added, config))
      else {
        introduce(added, config)
        await showReachability(added.account.id, config)
      }
    })
}

/** Refuses a blank value, and a missing one if there is no terminal. */
function requireAnswerable(given: Partial<Answers>): void {
  for (const { name, flag } of QUESTIONS)
    if (given[name]?.trim() === '') throw new FatalError(`${flag} must not be empty.`)
  const missing = missingOf(given).map(({ flag }) => flag)
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

function summaryOf({ organizationId, account, client, key }: AddedFirstAccount, config: AddressConfig) {
  return {
    organizationId,
    accountId: account.id,
    oaHash: account.oaHash,
    trackingKey: account.trackingKey,
    ...addressesOf(config, account.id, account.oaHash),
    clientId: client.clientId,
    clientSecret: client.clientSecret,
    key: key.key,
  }
}

function introduce(added: AddedFirstAccount, config: AddressConfig): void {
  const { organizationId, accountId, webhookUrl, callbackUrl, trackingKey, ...credentials } = summaryOf(
    added,
    config,
  )
  const base = baseUrl(config)
  const step = (title: string, ...lines: string[]) => {
    print(`\n${styled('bold', title)}`)
    for (const line of lines) print(`  ${line}`)
  }
  printOne({ organization: organizationId, account: accountId, trackingKey }, false)
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
}

/** Prints what keeps LINE from reaching the service. It does not fail, because the account has been added. */
async function showReachability(id: bigint, { publicUrl }: AddressConfig): Promise<void> {
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

/** Quotes a value for a POSIX shell. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}
