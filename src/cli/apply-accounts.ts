/** `oa-audience accounts apply`: brings the accounts of a file into service. */
import type { Command } from 'commander'
import { COLUMNS, type Field, secretWarning } from '../accounts/account-fields.ts'
import {
  type AppliedAccount,
  type ApplyOptions,
  applyAccounts,
  type FileFault,
  type Plan,
  planAccounts,
  RefusedLine,
  type WantedAccount,
} from '../accounts/apply-accounts.ts'
import { UNPROVEN } from '../accounts/channels.ts'
import { provePlans, readFleet } from '../accounts/fleet-file.ts'
import { type Outcome, onboard } from '../accounts/onboard.ts'
import {
  type Onboarding,
  PROPAGATION_MAX_MS,
  previewWebhook,
  publicUrlFault,
  type WebhookPreview,
} from '../accounts/point-webhook.ts'
import { readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { LineApi } from '../line-api/client.ts'
import { constraintSentence } from '../operations/constraint-sentences.ts'
import { commandActor } from '../operators/actor.ts'
import { onDatabase, withJson } from './input.ts'
import { fileSource, io, type Printable, print, printError, printMany, styled } from './io.ts'
import { Progress } from './progress.ts'

/**
 * Accounts processed at the same time. A command has 5 database connections, so no account waits for one. LINE's limits are per
 * channel. If LINE takes a minute to apply each of 200 URLs: 200 ÷ 5 × 1 min = 40 min.
 */
const ACCOUNTS_AT_ONCE = 5

interface Options {
  dryRun?: boolean
  webhook: boolean
  addOrganizations?: boolean
  json?: boolean
}

const HELP = `
The first line of the file contains the column names: organization (id or name) and channel_id identify an account; name,
channel_secret, channel_access_token and all other options of "accounts add" may follow. An empty cell keeps the stored value.
A second run continues an interrupted one and repeats nothing. Exits with 1 if an account has a problem.`

export function applyCommand(group: Command): void {
  withJson(group.command('apply'))
    .description(
      'add or update the accounts of a CSV file, set and test their webhook URLs, verify them and import followers',
    )
    .argument('<file>', 'CSV file in UTF-8; - reads standard input')
    .option('--dry-run', 'show what would change, and change nothing')
    .option('--add-organizations', 'add the organizations that do not exist yet (default: refuse the file)')
    .option('--no-webhook', 'neither set nor test the webhook URLs')
    .addHelpText('after', HELP)
    .action(async (file: string, { dryRun, webhook, addOrganizations, json }: Options) => {
      const { publicUrl, lineApiUrl } = readConfig(io.env)
      if (webhook) requirePublicUrl(publicUrl)
      const faults: FileFault[] = []
      const accounts = await readFleet(fileSource(file), faults)
      warnAboutSecrets(accounts)
      const wanted = { accounts, faults, addsOrganizations: addOrganizations === true }
      await onDatabase((database) => {
        const onboarding = {
          database,
          publicUrl,
          setsWebhook: webhook,
          importsFollowers: true,
          propagationMaxMs: PROPAGATION_MAX_MS,
          lineApi: new LineApi(lineApiUrl),
          actor: commandActor(),
        }
        return dryRun ? preview(onboarding, wanted, json === true) : apply(onboarding, wanted, json === true)
      })
    })
}

type Wanted = { accounts: WantedAccount[] } & Pick<ApplyOptions, 'faults' | 'addsOrganizations'>

function warnAboutSecrets(wanted: WantedAccount[]): void {
  for (const { line, columns } of wanted) {
    const warning = secretWarning(columns.channel_secret)
    if (warning !== null) printError(`oa-audience: warning: line ${line}: ${warning}`)
  }
}

function requirePublicUrl(publicUrl: string | null): void {
  const fault = publicUrlFault(publicUrl)
  const fix = 'Set PUBLIC_URL to the address at which LINE reaches this service, or add --no-webhook.'
  if (fault !== null) throw new FatalError(`${fault} ${fix}`)
}

async function apply(onboarding: Onboarding, wanted: Wanted, asJson: boolean): Promise<void> {
  const accounts = await storeAll(onboarding, wanted)
  const outcomes = await inParallel('accounts', accounts, ({ id }) => onboard(onboarding, id))
  const rows = accounts.map((account, i) => ({
    ...rowOf(account),
    account: account.id,
    ...(outcomes[i] as Outcome),
  }))
  printMany(rows, asJson)
  if (!asJson) printRemainingSteps(rows, onboarding.setsWebhook)
  if (rows.some(({ problem }) => problem !== null)) io.exitCode = 1
}

async function preview(onboarding: Onboarding, wanted: Wanted, asJson: boolean): Promise<void> {
  const plans = await planAccounts(onboarding.database, onboarding.actor, wanted.accounts, wanted)
  const webhooks = await inParallel('accounts', plans, (plan) => previewWebhook(onboarding, plan))
  printMany(
    plans.map((plan, i) => ({ ...rowOf(plan), ...(webhooks[i] as WebhookPreview) })),
    asJson,
  )
  if (!asJson) print('\nThis was a dry run: nothing was changed.')
}

/** It takes about 1 s per 1,000 accounts, besides the proof of changed secrets by LINE. */
async function storeAll({ database, lineApi, actor }: Onboarding, wanted: Wanted): Promise<AppliedAccount[]> {
  const unproven = await provePlans(lineApi, await planAccounts(database, actor, wanted.accounts, wanted))
  if (unproven > 0) printError(`oa-audience: warning: ${unproven} accounts: ${UNPROVEN}`)
  // Not earlier: a file with faults stores nothing.
  const progress = new Progress('accounts stored', wanted.accounts.length)
  const onProgress = (stored: number) => progress.show(stored)
  try {
    const { accounts } = await applyAccounts(database, actor, wanted.accounts, { ...wanted, onProgress })
    return accounts
  } catch (error) {
    if (!(error instanceof RefusedLine)) throw error
    throw new FatalError(`line ${error.line}: ${constraintSentence(error.cause)}\nNothing was changed.`)
  } finally {
    progress.end()
  }
}

/** Column names of changes, never their values. */
function rowOf({ storedId, organization, organizationId, name, channelId, changes }: Plan) {
  const columns = Object.keys(changes).map((field) => COLUMNS[field as Field])
  const change = storedId === null ? 'added' : columns.length > 0 ? 'updated' : 'unchanged'
  return {
    account: storedId,
    organization: organizationId ?? organization,
    name,
    channelId,
    change,
    columns: change === 'updated' ? columns.join(', ') : null,
  } satisfies Printable
}

/** The results are in the order of the items. */
async function inParallel<T, R>(unit: string, items: T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  const progress = new Progress(unit, items.length)
  const remaining = items.entries()
  let done = 0
  const worker = async () => {
    for (const [i, item] of remaining) {
      results[i] = await work(item)
      done += 1
      progress.show(done)
    }
  }
  try {
    await Promise.all(Array.from({ length: ACCOUNTS_AT_ONCE }, worker))
    return results
  } finally {
    progress.end()
  }
}

/** Settings that LINE's API can neither read nor change (developers.line.biz, "Build a bot" and "Receive messages"). */
const INVISIBLE_SETTINGS = [
  'LINE Developers Console, "Messaging API", "Webhook redelivery": switch it on. LINE then repeats deliveries that failed.',
  'LINE Developers Console, "Messaging API", "Auto-reply messages": disable them if a bot or a chat tool replies.',
  'LINE Developers Console, "Messaging API", "Allow bot to join group chats": enable it to receive events of groups.',
]

/** Prints nothing if the webhook was not requested. */
function printRemainingSteps(
  rows: Array<Pick<Outcome, 'webhookActive'> & { account: bigint }>,
  setsWebhook: boolean,
): void {
  if (!setsWebhook) return
  print(`\n${styled('bold', "Only LINE's own consoles can do the following:")}`)
  const inactive = rows.filter(({ webhookActive }) => webhookActive === false)
  if (inactive.length > 0) {
    const ids = inactive.map(({ account }) => account).join(', ')
    print(
      `  LINE Developers Console, "Messaging API", "Use webhook": switch it on for ${inactive.length} of ${rows.length} accounts: ${ids}`,
    )
  }
  print(`  For all accounts, because LINE's API does not show these settings:`)
  for (const setting of INVISIBLE_SETTINGS) print(`    ${setting}`)
}
