/** `oa-audience accounts apply`: brings the accounts of a file into service. */
import { type Field, secretWarning, UNPROVEN } from '../accounts/account-fields.ts'
import { COLUMNS } from '../accounts/provisioning.ts'
import type { Encoding } from '../audience/import/encodings.ts'
import { FatalError } from '../errors.ts'
import {
  type AppliedAccount,
  type ApplyOptions,
  applyAccounts,
  type FileFault,
  type Plan,
  planAccounts,
  RefusedLine,
  type WantedAccount,
} from '../jobs/apply-accounts.ts'
import { provePlans, readFleet } from '../jobs/fleet-file.ts'
import { publicUrlFault } from '../jobs/onboard.ts'
import { type OnboardingTally, startOnboarding } from '../jobs/onboard-accounts.ts'
import type { Platform } from '../jobs/step.ts'
import { counted } from '../observability/one-line.ts'
import { constraintSentence } from '../operations/constraint-sentences.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable } from '../postgres/statement.ts'
import type { CliCommand } from './command.ts'
import { finishJob } from './follow-job.ts'
import { encodingOption, fileSource, io, type Printable, print, printError, printMany, styled } from './io.ts'

interface Options {
  encoding: Encoding
  dryRun?: boolean
  webhook: boolean
  addOrganizations?: boolean
}

const HELP = `
The first line of the file contains the column names: organization (id or name) and channel_id identify an account; name,
channel_secret, channel_access_token and all other options of "accounts add" may follow. An empty cell keeps the stored value.
A second run continues an interrupted one and repeats nothing. Exits with 1 if an account has a problem.`

export function applyCommand(group: CliCommand, platformOf: () => Platform): void {
  group
    .command('apply')
    .description(
      'add or update the accounts of a CSV file, set and test their webhook URLs, verify them and import followers',
    )
    .argument('<file>', 'CSV file; - reads standard input')
    .addOption(encodingOption())
    .option('--dry-run', 'show what would change, and change nothing')
    .option('--add-organizations', 'add the organizations that do not exist yet (default: refuse the file)')
    .option('--no-webhook', 'neither set nor test the webhook URLs')
    .addHelpText('after', HELP)
    .onDatabase(
      async (database, file: string, { dryRun, webhook, addOrganizations = false, encoding }: Options) => {
        const platform = platformOf()
        if (webhook) requirePublicUrl(platform.publicUrl)
        const faults: FileFault[] = []
        const accounts = await readFleet(fileSource(file, encoding), faults)
        warnAboutSecrets(accounts)
        const wanted = { accounts, faults, addsOrganizations: addOrganizations }
        return dryRun ? preview(database, wanted) : apply(database, platform, wanted, webhook)
      },
      (rows, [, { dryRun, webhook }]) => {
        printMany(rows)
        if (dryRun) print('\nThis was a dry run: nothing was changed.')
        else if (webhook) printRemainingSteps()
      },
    )
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

async function apply(database: Database, platform: Platform, wanted: Wanted, setsWebhook: boolean) {
  const { accounts, jobId } = await storeAll(database, platform, wanted, setsWebhook)
  const job = await finishJob(database, jobId, 'accounts', platform)
  const {
    verified = 0,
    followersAdded = 0,
    problemCount = 0,
    problems = [],
  } = job.tally as Partial<OnboardingTally>
  const problemOf = new Map(problems.map(({ accountId, problem }) => [BigInt(accountId), problem]))
  const rows = accounts.map((account) => ({
    ...rowOf(account),
    account: account.id,
    problem: problemOf.get(account.id) ?? null,
  }))
  printError(
    `verified: ${verified} of ${counted(accounts.length, 'account')}, followers added: ${followersAdded}`,
  )
  const more = problemCount - problems.length
  if (more > 0)
    printError(`oa-audience: further accounts with a problem: ${more}. Run "oa-audience fleet" to see them.`)
  if (problemCount > 0) io.exitCode = 1
  return rows
}

const preview = async (database: Database, wanted: Wanted) =>
  (await planAccounts(database, commandActor(), wanted.accounts, wanted)).map(rowOf)

/** It takes about 1 s per 1,000 accounts, besides the proof of changed secrets by LINE. */
async function storeAll(database: Database, { lineApi }: Platform, wanted: Wanted, setsWebhook: boolean) {
  const actor = commandActor()
  const unproven = await provePlans(lineApi, await planAccounts(database, actor, wanted.accounts, wanted))
  if (unproven > 0) printError(`oa-audience: warning: ${counted(unproven, 'account')}: ${UNPROVEN}`)
  try {
    const start = (transaction: Queryable, stored: AppliedAccount[]) =>
      startOnboarding(transaction, actor, stored, setsWebhook)
    return await applyAccounts(database, actor, wanted.accounts, start, wanted)
  } catch (error) {
    if (!(error instanceof RefusedLine)) throw error
    throw new FatalError(`line ${error.line}: ${constraintSentence(error.cause)}\nNothing was changed.`)
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

/** Settings that LINE's API cannot change (developers.line.biz, "Build a bot" and "Receive messages"). */
const REMAINING_STEPS = [
  '"Use webhook": switch it on. Run "oa-audience fleet" to see the accounts where it is off.',
  '"Webhook redelivery": switch it on. LINE then repeats deliveries that failed.',
  '"Auto-reply messages": disable them if a bot or a chat tool replies.',
  '"Allow bot to join group chats": enable it to receive events of groups.',
]

function printRemainingSteps(): void {
  print(`\n${styled('bold', 'Only the LINE Developers Console, "Messaging API", can do the following:')}`)
  for (const step of REMAINING_STEPS) print(`  ${step}`)
}
