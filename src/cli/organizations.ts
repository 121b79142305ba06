/** `oa-audience organizations` */
import type { Command } from 'commander'
import { addOrganization } from '../accounts/provisioning.ts'
import { FatalError } from '../errors.ts'
import { listOrganizations } from '../operator/accounts.ts'
import { onDatabase, withJson } from './input.ts'
import { printMany, printOne } from './output.ts'

export function organizationsCommand(program: Command): void {
  const group = program
    .command('organizations')
    .description('manage the organizations that own official accounts')

  withJson(group.command('add'))
    .description('add an organization')
    .requiredOption('--name <name>', 'display name')
    .action(async ({ name, json }: { name: string; json?: boolean }) => {
      if (name.trim() === '') throw new FatalError('--name must not be empty')
      const id = await onDatabase((database) => addOrganization(database, name))
      printOne({ id }, json === true)
    })

  withJson(group.command('list'))
    .description('list all organizations')
    .action(async ({ json }: { json?: boolean }) => {
      printMany(await onDatabase(listOrganizations), json === true)
    })
}
