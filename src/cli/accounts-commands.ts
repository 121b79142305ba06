import type { Command } from 'commander'
import type { Account } from '../accounts/account.ts'
import { findAccountDetails, listAccounts } from '../accounts/accounts.ts'
import { addAccount, updateAccount, verifyAccount } from '../accounts/manage-accounts.ts'
import type { Claims, Verification } from '../accounts/verification.ts'
import type { ImportProgress } from '../audience/import/import-followers.ts'
import { readConfig } from '../config/config.ts'
import { AppError, FatalError } from '../errors.ts'
import type { RemovalTally } from '../jobs/remove-account.ts'
import { LineApi } from '../line-api/client.ts'
import { deliveryPaths } from '../line-api/line-signature.ts'
import { ACCOUNTS } from '../operations/organizations.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import type { Problem } from '../watch/account-status.ts'
import { listFleet } from '../watch/fleet.ts'
import { findFleetAccount } from '../watch/fleet-facts.ts'
import { explainProblem } from '../watch/problem-commands.ts'
import { confirmStatuses } from '../watch/store-statuses.ts'
import {
  addressesOf,
  columnsOf,
  type Fields,
  type Proving,
  proverOf,
  SECRET_FLAGS,
  warnIfUnproven,
  withFields,
} from './account-fields.ts'
import { applyCommand } from './apply-accounts.ts'
import { finishJob } from './follow-job.ts'
import { notFound, onDatabase, parseId, requireAccount, withJson } from './input.ts'
import { io, print, printJson, printMany, printOne, styled } from './io.ts'
import { addOperations, addRemoveCommand, performHere } from './operation-commands.ts'
import { readSecrets } from './questions.ts'

function platform() {
  const { lineApiUrl, publicUrl } = readConfig(io.env)
  return { lineApi: new LineApi(lineApiUrl), publicUrl, webhookPaths: deliveryPaths, now: Date.now }
}

export function accountsCommand(program: Command): void {
  const group = program.command('accounts').description('manage official accounts')
  addCommand(group)
  updateCommand(group)
  applyCommand(group, platform)
  withJson(group.command('list'))
    .description('list all official accounts without their secrets')
    .action(async ({ json }: { json?: boolean }) => printMany(await onDatabase(listAccounts), json === true))
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

function addCommand(group: Command): void {
  withJson(withFields(group.command('add')))
    .description('add an official account and print its oaHash, its trackingKey and its addresses')
    .requiredOption('--organization <id>', 'id of the organization that owns it', parseId)
    .requiredOption('--name <name>', 'display name')
    .action(
      async ({
        organization,
        json,
        unproven = false,
        ...fields
      }: Fields & Proving & { organization: bigint; name: string; json?: boolean }) => {
        const columns = { ...columnsOf(await readSecrets(fields, SECRET_FLAGS)), name: fields.name }
        const account = await onDatabase((database) =>
          addAccount({ database, lineApi: proverOf({ unproven }) }, commandActor(), organization, columns),
        )
        if (account === null) throw notFound('organization', organization)
        warnIfUnproven(account.proof)
        const { id, oaHash, trackingKey } = account
        const added = { id, oaHash, trackingKey }
        // Programs read these three fields. People also need the URLs.
        printOne(json ? added : { ...added, ...addressesOf(readConfig(io.env), id, oaHash) }, json === true)
      },
    )
}

function updateCommand(group: Command): void {
  withJson(withFields(group.command('update')))
    .description('change the given fields; the next delivery is checked against them')
    .argument('<id>', 'id of the account', parseId)
    .option('--name <name>', 'display name')
    .action(
      async (id: bigint, { json, unproven = false, ...fields }: Fields & Proving & { json?: boolean }) => {
        const changes = columnsOf(await readSecrets(fields, SECRET_FLAGS))
        const changed = Object.keys(changes)
        if (changed.length === 0)
          throw new FatalError('no field to change is given. See --help for the options.')
        const updated = await onDatabase((database) =>
          updateAccount({ database, lineApi: proverOf({ unproven }) }, commandActor(), id, changes),
        )
        warnIfUnproven(updated.proof)
        printOne({ id, changed: changed.join(', ') }, json === true)
      },
    )
}

function showCommand(group: Command): void {
  withJson(group.command('show'))
    .description(
      'show an account with its oaHash, its trackingKey and its addresses, but without its secrets',
    )
    .argument('<id>', 'id of the account', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const [account, facts] = await onDatabase(async (database) => [
        await findAccountDetails(database, ALL_ORGANIZATIONS, id),
        await findFleetAccount(database, ALL_ORGANIZATIONS, id),
      ])
      const worst = facts?.problems[0]
      const muted = worst?.muted && {
        mutedProblem: worst.reason,
        mutedUntil: worst.muted.until,
        muteReason: worst.muted.reason,
      }
      const addresses = addressesOf(readConfig(io.env), id, account.oaHash)
      const shown = { ...account, status: facts?.status ?? null, ...muted, ...addresses }
      if (json) printJson(shown)
      else printOne({ ...shown, loginChannelIds: shown.loginChannelIds.join(', ') }, false)
    })
}

function verifyCommand(group: Command): void {
  withJson(group.command('verify'))
    .description('ask the platform whether an account is set up correctly; exits with 1 if it is not')
    .argument('<id>', 'id of the account', parseId)
    .option('--test-webhook', 'also make the platform send a test delivery (at most 60 an hour)')
    .option(
      '--prove-redelivery',
      'store the next delivery and refuse it once, which proves whether LINE sends it again (once an hour)',
    )
    .action(async (id: bigint, { json, ...claims }: Claims & { json?: boolean }) => {
      const verification = await onDatabase(async (database) =>
        verify(database, await requireAccount(database, id), claims),
      )
      if (json) printJson(verification)
      else printVerification(verification)
      if (!verification.verified) io.exitCode = 1
    })
}

async function verify(database: Database, account: Account, claims: Claims): Promise<Verification> {
  try {
    return await verifyAccount({ ...platform(), database }, commandActor(), account, claims)
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'platform_unavailable') throw error
    throw new FatalError(`${error.message} (in ${error.retryAfterSeconds} s)`)
  }
}

function printVerification({ verified, account, accountType, webhook, checks }: Verification): void {
  const rows = checks.map(({ name, ok, message }) => ({
    check: name,
    ok: ok === null ? '-' : ok ? 'yes' : 'NO',
    message,
  }))
  printMany(rows, false)
  print()
  printOne(
    {
      verified,
      account: account && `${account.displayName} (${account.basicId}, ${account.userId})`,
      type: accountType,
      webhook: webhook?.endpoint ?? null,
    },
    false,
  )
}

function importFollowersCommand(group: Command): void {
  withJson(group.command('import-followers'))
    .description("add everyone on the platform's list of followers; resumes an interrupted import")
    .requiredOption('--account <id>', 'id of the account', parseId)
    .action(async ({ account: id, json }: { account: bigint; json?: boolean }) => {
      const { done, tally } = await onDatabase(async (database) => {
        const { job } = await performHere(database, ACCOUNTS.followers, { id })
        return finishJob(database, job as bigint, 'followers', platform())
      })
      const { added = 0, skipped = 0 } = tally as Partial<ImportProgress>
      printOne({ seen: Number(done), added, skipped }, json === true)
    })
}

// `oa-audience fleet`: all accounts, worst first.

export function fleetCommand(program: Command): void {
  withJson(program.command('fleet'))
    .description(
      'list all official accounts, worst first, with what to do; exits with 1 if one is broken and not muted',
    )
    .action(async ({ json }: { json?: boolean }) => {
      const now = Date.now()
      const accounts = await onDatabase(async (database) => {
        await confirmStatuses(database)
        return listFleet(database, ALL_ORGANIZATIONS)
      })
      const fleet = accounts.map((account) => ({
        ...account,
        problems: account.problems.map((problem) => ({
          ...problem,
          ...explainProblem(account.id, problem, now),
        })),
      }))
      if (json) printJson(fleet)
      else {
        printMany(
          fleet.map(({ id, name, status, lastDeliveryAt, deliveries24h, following, problems }) => ({
            id,
            name,
            status,
            lastDeliveryAt,
            deliveries24h,
            following,
            problem: problems[0]?.message ?? null,
          })),
          false,
        )
        for (const { id, name, problems } of fleet)
          for (const { message, fix } of problems)
            print(`\n${styled('bold', `${id} ${name}`)}: ${message}\n  ${fix}`)
      }
      const isBroken = ({ status, muted }: Problem) => status === 'broken' && muted === undefined
      if (accounts.some(({ problems }) => problems.some(isBroken))) io.exitCode = 1
    })
}
