/** `oa-audience accounts` and `fleet`. */
import { type Field, secretWarning, UNPROVEN } from '../accounts/account-fields.ts'
import { findAccountDetails, listAccounts } from '../accounts/accounts.ts'
import { COLUMNS } from '../accounts/provisioning.ts'
import type { Claims, Verification } from '../accounts/verification.ts'
import type { ImportProgress } from '../audience/import/import-followers.ts'
import { type Config, readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { localUrl } from '../http/listen.ts'
import type { RemovalTally } from '../jobs/remove-account.ts'
import { ACCOUNTS, addressesOf } from '../operations/accounts.ts'
import type { Operation } from '../operations/operation.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import type { FleetAccount, Problem } from '../watch/account-status.ts'
import { listFleet } from '../watch/fleet.ts'
import { findFleetAccount } from '../watch/fleet-facts.ts'
import { explainProblem } from '../watch/languages.ts'
import { confirmStatuses } from '../watch/store-statuses.ts'
import { applyCommand } from './apply-accounts.ts'
import { type CliCommand, parseId } from './command.ts'
import { finishJob } from './follow-job.ts'
import { io, print, printError, printMany, printOne, styled } from './io.ts'
import {
  addOperation,
  addOperations,
  addRemoveCommand,
  inputOf,
  openLineApi,
  optionsOf,
  performHere,
  platform,
} from './operation-commands.ts'

export function accountsCommand(program: CliCommand): void {
  const group = program.command('accounts').description('manage official accounts')
  addCommand(group)
  updateCommand(group)
  applyCommand(group, platform)
  group
    .command('list')
    .description('list all official accounts without their secrets')
    .onDatabase((database) => listAccounts(database))
  showCommand(group)
  verifyCommand(group)
  importFollowersCommand(group)
  addOperations(group, [ACCOUNTS.mute, ACCOUNTS.unmute])
  addRemoveCommand(
    group,
    'remove an account with its members, events, endpoints and keys; its deliveries and requests are refused from the start, and an interrupted removal continues when the command is run again',
    [ACCOUNTS.contents, ACCOUNTS.remove],
    // An interrupted run has deleted some already.
    ({ tally }) => {
      const { event = 0, tracking_event = 0 } = tally as RemovalTally
      return { storedEvents: event + tracking_event }
    },
  )
}

function addCommand(group: CliCommand): void {
  withFields(addOperation(group, ACCOUNTS.add), ACCOUNTS.add)
    .description('add an official account and print its oaHash, its trackingKey and its addresses')
    .onDatabase(
      async (database, given: object) => {
        const { result } = await setFields(database, ACCOUNTS.add, { ...given })
        const { id, oaHash, trackingKey } = result
        return { id, oaHash, trackingKey }
      },
      (added) => printOne({ ...added, ...addressesHere(added) }),
    )
}

function updateCommand(group: CliCommand): void {
  withFields(addOperation(group, ACCOUNTS.update))
    .description('change the given fields; the next delivery is checked against them')
    .onDatabase(async (database, id: bigint, given: object) => {
      if (Object.keys(given).every((name) => !(name in COLUMNS)))
        throw new FatalError('no field to change is given. See --help for the options.')
      const { fields } = await setFields(database, ACCOUNTS.update, { ...given }, id)
      return { id, changed: fields.map((field) => COLUMNS[field as Field]).join(', ') }
    })
}

const addressesHere = ({ id, oaHash }: { id: bigint; oaHash: string }) =>
  addressesOf(baseUrlOf(readConfig(io.env)), id, oaHash)

function showCommand(group: CliCommand): void {
  group
    .command('show')
    .description(
      'show an account with its oaHash, its trackingKey and its addresses, but without its secrets',
    )
    .argument('<id>', 'id of the account', parseId)
    .onDatabase(async (database, id: bigint) => {
      const account = await findAccountDetails(database, ALL_ORGANIZATIONS, id)
      const facts = await findFleetAccount(database, ALL_ORGANIZATIONS, id)
      const worst = facts?.problems[0]
      const muted = worst?.muted && {
        mutedProblem: worst.reason,
        mutedUntil: worst.muted.until,
        muteReason: worst.muted.reason,
      }
      return { ...account, status: facts?.status ?? null, ...muted, ...addressesHere(account) }
    })
}

function verifyCommand(group: CliCommand): void {
  addOperation(group, ACCOUNTS.verify)
    .description('ask LINE whether an account is set up correctly; exits with 1 if it is not')
    .option('--test-webhook', 'also make LINE send a test delivery (at most 60 an hour)')
    .option(
      '--prove-redelivery',
      'store the next delivery and refuse it once, which proves whether LINE sends it again (once an hour)',
    )
    .onDatabase(async (database, id: bigint, claims: Claims) => {
      const { result } = await performHere(database, ACCOUNTS.verify, { id, input: claims })
      if (!result?.verified) io.exitCode = 1
      return result as Verification
    }, printVerification)
}

function printVerification({ verified, account, accountType, webhook, checks }: Verification): void {
  const rows = checks.map(({ name, ok, message }) => ({
    check: name,
    ok: ok === null ? '-' : ok ? 'yes' : 'NO',
    message,
  }))
  printMany(rows)
  print()
  printOne({
    verified,
    account: account && `${account.displayName} (${account.basicId}, ${account.userId})`,
    type: accountType,
    webhook: webhook?.endpoint ?? null,
  })
}

function importFollowersCommand(group: CliCommand): void {
  group
    .command('import-followers')
    .description("add everyone on LINE's list of followers; resumes an interrupted import")
    .requiredOption('--account <id>', 'id of the account', parseId)
    .onDatabase(async (database, { account: id }: { account: bigint }) => {
      const { job } = await performHere(database, ACCOUNTS.followers, { id })
      const { done, tally } = await finishJob(database, job as bigint, 'followers', platform())
      const { added = 0, skipped = 0 } = tally as Partial<ImportProgress>
      return { seen: Number(done), added, skipped }
    })
}

// `oa-audience fleet`: all accounts, worst first.

export function fleetCommand(program: CliCommand): void {
  program
    .command('fleet')
    .description(
      'list all official accounts, worst first, with what to do; exits with 1 if one is broken and not muted',
    )
    .onDatabase(async (database) => {
      const now = Date.now()
      await confirmStatuses(database)
      const accounts = await listFleet(database, ALL_ORGANIZATIONS)
      const isBroken = ({ status, muted }: Problem) => status === 'broken' && muted === undefined
      if (accounts.some(({ problems }) => problems.some(isBroken))) io.exitCode = 1
      return accounts.map((account) => ({
        ...account,
        problems: account.problems.map((problem) => ({
          ...problem,
          ...explainProblem(account.id, problem, now),
        })),
      }))
    }, printFleet)
}

type Explained = { message: string; fix: string }

function printFleet(fleet: Array<Omit<FleetAccount, 'problems'> & { problems: Explained[] }>): void {
  const rows = fleet.map(({ id, name, status, lastDeliveryAt, deliveries24h, following, problems }) => ({
    ...{ id, name, status, lastDeliveryAt, deliveries24h, following },
    problem: problems[0]?.message ?? null,
  }))
  printMany(rows)
  for (const { id, name, problems } of fleet)
    for (const { message, fix } of problems)
      print(`\n${styled('bold', `${id} ${name}`)}: ${message}\n  ${fix}`)
}

// The fields of an account as options, which `accounts add`, `accounts update` and `setup` share.

const SECRETS_HELP = `
A secret given as - is read from standard input, so that it does not appear in the list of processes.
Several secrets are read one line each, in the order of the options:
  printf '%s\\n' "$SECRET" "$TOKEN" | oa-audience accounts update 1 --channel-secret - --channel-access-token -`

export function withFields(command: CliCommand, operation: Operation = ACCOUNTS.update): CliCommand {
  for (const option of optionsOf(operation)) command.addOption(option)
  return command.addHelpText('after', SECRETS_HELP)
}

/** Adds or changes an account. Returns the names of the fields that options give. */
async function setFields<R extends { isUnproven?: boolean }>(
  database: Database,
  operation: Operation<R>,
  given: Record<string, unknown>,
  id: bigint | null = null,
) {
  const input = await inputOf(operation, given)
  warnAboutSecret(input)
  const checked = operation.check(input)
  const services = { lineApi: openLineApi(readConfig(io.env)) }
  const { result } = await performHere(database, operation, { id, input: checked }, services)
  warnIfUnproven(result?.isUnproven)
  const { unproven: _, ...fields } = input as Record<string, unknown>
  return { result: result as R, fields: Object.keys(fields) }
}

export function warnAboutSecret({ channelSecret }: { channelSecret?: string | null }): void {
  const warning = secretWarning(channelSecret?.trim())
  if (warning !== null) printError(`oa-audience: warning: ${warning}`)
}

/** Printed after the change, so that it is the last line. */
export function warnIfUnproven(isUnproven = false): void {
  if (isUnproven) printError(`oa-audience: warning: ${UNPROVEN}`)
}

export function baseUrlOf({ publicUrl, host, port }: Pick<Config, 'publicUrl' | 'host' | 'port'>): string {
  return publicUrl ?? localUrl(host, port)
}
