/** `remove` of a command group: says what it would delete, and deletes it with --yes. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { onDatabase, parseId, withJson } from './input.ts'
import { type Printable, printOne } from './output.ts'

interface Removal {
  /** such as `account` */
  noun: string
  description: string
  /** What would be deleted. Null: it does not exist. */
  preview: (database: Database, id: bigint) => Promise<Printable | null>
  /** Returns what was deleted. Null: it does not exist. */
  remove: (database: Database, id: bigint) => Promise<Printable | null>
}

export function addRemoveCommand(group: Command, { noun, description, preview, remove }: Removal): void {
  withJson(group.command('remove'))
    .description(description)
    .argument('<id>', `id of the ${noun}, as \`${noun}s list\` shows it`, parseId)
    .option('--yes', 'remove it; without this option, the command only says what it would delete')
    .action(async (id: bigint, { yes, json }: { yes?: boolean; json?: boolean }) => {
      const contents = await onDatabase((database) => (yes ? remove : preview)(database, id))
      if (contents === null)
        throw new FatalError(
          `${noun} ${id} does not exist. Run "oa-audience ${noun}s list" to see all ${noun}s.`,
        )
      printOne({ id, ...contents, removed: yes === true }, json === true)
      if (!yes)
        throw new FatalError(
          `nothing was removed. Run "oa-audience ${noun}s remove ${id} --yes" to delete all of this permanently.`,
        )
    })
}
