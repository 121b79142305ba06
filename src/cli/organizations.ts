import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { insertOne, onDatabase, withJson } from './input.ts'
import { printMany, printOne } from './output.ts'

export function organizationsCommand(program: Command): void {
  const group = program.command('organizations').description('the organizations that own official accounts')

  withJson(group.command('add'))
    .description('add an organization')
    .requiredOption('--name <name>')
    .action(async ({ name, json }: { name: string; json?: boolean }) => {
      if (name.trim() === '') throw new FatalError('--name must not be empty')
      const added = await onDatabase((database) =>
        insertOne<{ id: bigint }>(database, 'organization', '(name) values ($1) returning id', [name]),
      )
      if (added) printOne({ id: added.id }, json === true)
    })

  withJson(group.command('list'))
    .description('list all organizations')
    .action(async ({ json }: { json?: boolean }) => {
      const rows = await onDatabase((database) =>
        database.query<{ id: bigint; name: string }>('select id, name from organization order by id'),
      )
      printMany(rows, json === true)
    })
}
