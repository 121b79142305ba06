/** `oa-audience accounts` */
import type { Command } from 'commander'
import { addAccount, updateAccount } from '../accounts/provisioning.ts'
import { readConfig } from '../config.ts'
import { FatalError } from '../errors.ts'
import { findAccountDetails, listAccounts } from '../operator/accounts.ts'
import { findAccountContents, removeAccount } from '../operator/remove-account.ts'
import type { Database } from '../postgres/database.ts'
import { columnsOf, type Fields, SECRET_FLAGS, withFields } from './account-fields.ts'
import { addressesOf } from './addresses.ts'
import { applyCommand } from './apply-accounts.ts'
import { importFollowersCommand } from './import-followers.ts'
import { onDatabase, parseId, unknownAccount, withJson } from './input.ts'
import { io } from './io.ts'
import { type Printable, printMany, printOne } from './output.ts'
import { Progress } from './progress.ts'
import { addRemoveCommand } from './removal.ts'
import { readSecrets } from './secret-input.ts'
import { verifyCommand } from './verify.ts'

export function accountsCommand(program: Command): void {
  const group = program.command('accounts').description('manage official accounts')
  addCommand(group)
  updateCommand(group)
  applyCommand(group)
  listCommand(group)
  showCommand(group)
  verifyCommand(group)
  importFollowersCommand(group)
  addRemoveCommand(group, {
    noun: 'account',
    description:
      'remove an account with its members, events, endpoints and keys; its deliveries and requests are refused from the start, and an interrupted removal continues when the command is run again',
    preview: findAccountContents,
    remove,
  })
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
        ...fields
      }: Fields & { organization: bigint; name: string; json?: boolean }) => {
        const columns = { ...columnsOf(await readSecrets(fields, SECRET_FLAGS)), name: fields.name }
        const { id, oaHash, trackingKey } = await onDatabase((database) =>
          addAccount(database, organization, columns),
        )
        const added = { id, oaHash, trackingKey }
        // Programs read these three fields. People also need the addresses.
        printOne(json ? added : { ...added, ...addressesOf(readConfig(io.env), id, oaHash) }, json === true)
      },
    )
}

function updateCommand(group: Command): void {
  withJson(withFields(group.command('update')))
    .description('change the given fields; the next delivery is checked against them')
    .argument('<id>', 'id of the account', parseId)
    .option('--name <name>', 'display name')
    .action(async (id: bigint, { json, ...fields }: Fields & { json?: boolean }) => {
      const changes = columnsOf(await readSecrets(fields, SECRET_FLAGS))
      const changed = Object.keys(changes)
      if (changed.length === 0)
        throw new FatalError('no field to change is given. See --help for the options.')
      const isUpdated = await onDatabase((database) => updateAccount(database, id, changes))
      if (!isUpdated) throw unknownAccount(id)
      printOne({ id, changed: changed.join(', ') }, json === true)
    })
}

function listCommand(group: Command): void {
  withJson(group.command('list'))
    .description('list all official accounts without their secrets')
    .action(async ({ json }: { json?: boolean }) => {
      printMany(await onDatabase(listAccounts), json === true)
    })
}

function showCommand(group: Command): void {
  withJson(group.command('show'))
    .description(
      'show an account with its oaHash, its trackingKey and its addresses, but without its secrets',
    )
    .argument('<id>', 'id of the account', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const account = await onDatabase((database) => findAccountDetails(database, id))
      if (account === null) throw unknownAccount(id)
      printOne({ ...account, ...addressesOf(readConfig(io.env), id, account.oaHash) }, json === true)
    })
}

/** Counts what was deleted now. A continued removal finds only what the interrupted one has left. */
async function remove(database: Database, id: bigint): Promise<Printable | null> {
  const account = await findAccountDetails(database, id)
  if (account === null) return null
  const progress = new Progress('rows', null)
  try {
    const deleted = await removeAccount(database, id, { onProgress: (rows) => progress.show(rows) })
    return (
      deleted && {
        name: account.name,
        members: deleted.audience_member,
        receivedEvents: deleted.event_key,
        storedEvents: deleted.event + deleted.tracking_event,
        endpoints: deleted.endpoint,
        waitingDeliveries: deleted.endpoint_delivery,
        apiKeys: deleted.api_key,
      }
    )
  } finally {
    progress.end()
  }
}
