import { type Command, Option } from 'commander'
import { FatalError } from '../errors.ts'
import type { Operation } from '../operations/operation.ts'
import type { Database } from '../postgres/database.ts'
import { notFound, onDatabase, parseId, withJson } from './input.ts'
import { type Printable, printMany, printOne } from './io.ts'
import { addOperation, performHere } from './operation-commands.ts'

export function addListCommand(
  group: Command,
  description: string,
  list: (database: Database) => Promise<Printable[]>,
): void {
  withJson(group.command('list'))
    .description(description)
    .action(async ({ json }: { json?: boolean }) => printMany(await onDatabase(list), json === true))
}

/** A command that changes the status of one object. */
export function addChangeCommand(
  group: Command,
  noun: string,
  [name, status]: [name: string, status: string],
  description: string,
  change: (database: Database, id: bigint) => Promise<void>,
): void {
  withJson(group.command(name))
    .description(description)
    .argument('<id>', `id of the ${noun}, as \`${noun}s list\` shows it`, parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      await onDatabase((database) => change(database, id))
      printOne({ id, status }, json === true)
    })
}

interface Removal {
  /** such as `account` */
  noun: string
  description: string
  /** Returns what would be deleted, or null if the object does not exist. */
  preview: (database: Database, id: bigint) => Promise<Printable | null>
  /** Returns what was deleted, or null if the object does not exist. */
  remove: (database: Database, id: bigint) => Promise<Printable | null>
}

/** Prints what it would delete, and deletes it only with --yes. */
export function addRemoveCommand(group: Command, { noun, description, preview, remove }: Removal): void {
  withJson(group.command('remove'))
    .description(description)
    .argument('<id>', `id of the ${noun}, as \`${noun}s list\` shows it`, parseId)
    .option('--yes', 'remove it; without this option, the command only says what it would delete')
    .action(async (id: bigint, { yes, json }: { yes?: boolean; json?: boolean }) => {
      const contents = await onDatabase((database) => (yes ? remove : preview)(database, id))
      if (contents === null) throw notFound(noun, id)
      printOne({ id, ...contents, removed: yes === true }, json === true)
      if (!yes)
        throw new FatalError(
          `nothing was removed. Run "oa-audience ${noun}s remove ${id} --yes" to delete all of this permanently.`,
        )
    })
}

type Rotation = Record<'rotate' | 'finishRotation' | 'discardRotation', Operation<object | undefined>>

/** `rotate`, with --finish and --discard, which end a rotation. */
export function addRotateCommand(
  group: Command,
  { rotate, finishRotation, discardRotation }: Rotation,
  help: Record<'description' | 'finish' | 'discard', string>,
): void {
  addOperation(group, rotate)
    .description(help.description)
    .addOption(new Option('--finish', help.finish).conflicts('discard'))
    .option('--discard', help.discard)
    .action(async (id: bigint, { finish, discard, json }: Record<string, boolean | undefined>) => {
      const operation = finish ? finishRotation : discard ? discardRotation : rotate
      const { result } = await onDatabase((database) => performHere(database, operation, { id }))
      const status = { status: finish ? 'finished' : 'discarded' }
      printOne({ id, ...(result ?? status) }, json === true)
    })
}
