/** The commands of operations: see operations/operation.ts. */
import { Option } from 'commander'
import { ErasureLedger } from '../audience/erasure/erasure-ledger.ts'
import { type Config, readConfig } from '../config/config.ts'
import { isOwnUrl, ownAddresses } from '../endpoints/address.ts'
import { HostResolver } from '../endpoints/resolver.ts'
import { EndpointTester } from '../endpoints/test-delivery.ts'
import { FatalError } from '../errors.ts'
import { itemsOf } from '../http/csv.ts'
import { EgressProxy } from '../http/egress-proxy.ts'
import { localUrl } from '../http/listen.ts'
import { Type } from '../http/typebox.ts'
import type { JobSummary } from '../jobs/job.ts'
import { LineApi } from '../line-api/client.ts'
import { deliveryPaths } from '../line-api/line-signature.ts'
import {
  type Operation,
  type Outcome,
  PAGE_SIZE,
  perform,
  read,
  type Services,
} from '../operations/operation.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import type { Transactions } from '../postgres/statement.ts'
import { ChannelTester } from '../watch/notifications/history.ts'
import { openNotificationSender } from '../watch/notifications/send.ts'
import { type CliCommand, parseId } from './command.ts'
import { finishJob } from './follow-job.ts'
import { io, type Printable, printError, printMany, printOne } from './io.ts'
import { readSecrets } from './questions.ts'

/** Adds a command for each of the operations that have a help text. @param shown the result of a change, as it is printed */
export function addOperations(
  group: CliCommand,
  operations: Operation[],
  shown = (result: Printable) => result,
  show: (result: Printable) => void = printOne,
): void {
  for (const operation of operations.filter(({ help }) => help !== null)) {
    const command = addOperation(group, operation)
    for (const option of optionsOf(operation)) command.addOption(option)
    command.onDatabase(
      async (database, ...parsed: unknown[]) => {
        const id = operation.hasTarget ? (parsed.shift() as bigint) : null
        const input = operation.check(await inputOf(operation, parsed[0] as Given))
        if (operation.way === 'list') return readAll(database, operation, { id, input })
        const { result, job } = await performHere(database, operation, { id, input })
        if (job) await finishJob(database, job, null)
        const status = operation.hasTarget ? { status: operation.status } : {}
        return shown({ ...(id !== null && { id }), ...(result ?? status) })
      },
      (result) =>
        Array.isArray(result)
          ? printMany(result.map((item) => operation.row(item as never) as Printable))
          : show(result as Printable),
    )
  }
}

/** The command of an operation, with the argument for its target. Options and action are still missing. */
export function addOperation(group: CliCommand, { name, noun, hasTarget, help }: Operation): CliCommand {
  const command = group.command(name.slice(name.indexOf('.') + 1)).description(help ?? '')
  if (!hasTarget) return command
  return command.argument('<id>', `id of the ${noun.word}, as \`${noun.plural} list\` shows it`, parseId)
}

export function performHere<R>(
  database: Transactions,
  operation: Operation<R>,
  call: { id?: bigint | null; input?: object; page?: { after: bigint | null; limit: number } } = {},
  services: Partial<Services> = {},
): Promise<Outcome<R>> {
  const all = { ...commandServices(), ...services }
  return perform(operation, { database, actor: commandActor(), services: all, ...call })
}

export const openLineApi = ({ lineApiUrl, egressProxy }: Pick<Config, 'lineApiUrl' | 'egressProxy'>) =>
  new LineApi(lineApiUrl, { fetch: EgressProxy.open(egressProxy)?.fetch })

/** What asks LINE for accounts. */
export function platform() {
  const config = readConfig(io.env)
  const { publicUrl } = config
  return { lineApi: openLineApi(config), publicUrl, webhookPaths: deliveryPaths, now: Date.now }
}

export function commandServices(): Services {
  const config = readConfig(io.env)
  const { publicUrl, host, port } = config
  const ownUrls = () => ownAddresses(publicUrl, host, port)
  const isOwn = (url: URL) => isOwnUrl(url, ownUrls())
  const route = EgressProxy.open(config.egressProxy) ?? new HostResolver()
  const verifier = platform()
  return {
    now: Date.now,
    ownUrls,
    canEmail: config.smtpUrl !== null,
    endpointTester: new EndpointTester(isOwn, route),
    channelTester: new ChannelTester(async (...message) =>
      (await openNotificationSender(config, isOwn, route))(...message),
    ),
    lineApi: verifier.lineApi,
    verifier,
    erasureLedger: () => ErasureLedger.open(config.erasureLedger),
    baseUrl: publicUrl ?? localUrl(host, port),
    counted: (_actor, count) => count(),
  }
}

async function readAll(database: Database, operation: Operation, call: { id: bigint | null; input: object }) {
  const rows: Array<{ id: bigint }> = []
  for (let after: bigint | null = null; ; ) {
    const page = { after, limit: PAGE_SIZE }
    const { result } = await performHere(database, operation, { ...call, page })
    const read = result as typeof rows
    rows.push(...read)
    if (operation.isWhole || read.length < PAGE_SIZE) return rows
    after = read.at(-1)?.id ?? null
  }
}

/** `remove` only prints what it would delete without --yes. @param deleted what a job has deleted beside `contents` */
export function addRemoveCommand<Contents extends object>(
  group: CliCommand,
  description: string,
  [contents, remove]: [Operation<Contents>, Operation<Contents | undefined>],
  deleted: (job: JobSummary) => object = () => ({}),
): void {
  addOperation(group, remove)
    .description(description)
    .option('--yes', 'remove it; without this option, the command only says what it would delete')
    .onDatabase(async (database, id: bigint, { yes = false }: { yes?: boolean }) => {
      // Counting may take longer than a request may, and a read opens no transaction.
      const found = await database.session((session) =>
        read(contents, { database: session, actor: commandActor(), services: commandServices(), id }),
      )
      if (!yes) {
        const command = `oa-audience ${remove.noun.plural} remove ${id} --yes`
        printError(`oa-audience: nothing was removed. Run "${command}" to delete all of this permanently.`)
        io.exitCode = 1
        return { id, ...found, removed: false }
      }
      const input = 'name' in remove.input ? { name: (found as { name?: string }).name } : {}
      const { result, job } = await performHere(database, remove, { id, input })
      const shown = job ? { ...found, ...deleted(await finishJob(database, job, 'rows')) } : result
      return { id, ...shown, removed: true }
    })
}

type Rotation = Record<'rotate' | 'finishRotation' | 'discardRotation', Operation<object | undefined>>

/** `rotate`, with --finish and --discard, which end a rotation. */
export function addRotateCommand(
  group: CliCommand,
  { rotate, finishRotation, discardRotation }: Rotation,
  help: Record<'description' | 'finish' | 'discard', string>,
): void {
  addOperation(group, rotate)
    .description(help.description)
    .addOption(new Option('--finish', help.finish).conflicts('discard'))
    .option('--discard', help.discard)
    .onDatabase(async (database, id: bigint, { finish, discard }: Record<string, boolean | undefined>) => {
      const operation = finish ? finishRotation : discard ? discardRotation : rotate
      const { result } = await performHere(database, operation, { id })
      return { id, ...(result ?? { status: finish ? 'finished' : 'discarded' }) }
    })
}

// Options.

type Given = Record<string, unknown>

interface Field {
  type?: string
  enum?: string[]
  anyOf?: Field[]
  description?: string
  default?: unknown
  nullWord?: string
  not?: string
  secret?: true
  isId?: true
  each?: string
}

const fieldsOf = ({ input }: Operation) => Object.entries(input as Record<string, Field>)
export const wordsOf = (name: string) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
const typeOf = ({ type, anyOf }: Field) => type ?? anyOf?.[0]?.type

export function optionsOf(operation: Operation): Option[] {
  return fieldsOf(operation).flatMap(([name, field]) => {
    const { description = '', not, isId, each } = field
    const words = wordsOf(each ?? name)
    if (typeOf(field) === 'boolean') {
      const option = new Option(`--${words}`, description)
      return not && operation.way === 'change' ? [option, new Option(`--no-${words}`, not)] : [option]
    }
    const value = each ? 'id...' : isId ? 'id' : words
    const option = new Option(`--${words} <${value}>`, description)
    if (field.enum) option.choices(field.enum)
    if (isId) option.argParser(parseId)
    if (field.default) option.default(field.default)
    return [option.makeOptionMandatory(!Type.IsOptional(field))]
  })
}

export async function inputOf(operation: Operation, { json: _, ...options }: Given): Promise<object> {
  const fields = fieldsOf(operation)
  const flags = fields.flatMap(([name, { secret }]) => (secret ? [[name, `--${wordsOf(name)}`]] : []))
  const given = await readSecrets(options, Object.fromEntries(flags))
  if (operation.way === 'change' && fields.length > 0 && Object.keys(given).length === 0)
    throw new FatalError('nothing to change. Give at least one option.')
  const sentOf = (field: Field, value: unknown) => {
    if (String(value) === field.nullWord) return null
    if (typeof value === 'bigint') return String(value)
    if (typeOf(field) === 'object') return parseJson(String(value))
    if (typeOf(field) === 'integer') return Number(value)
    return typeOf(field) === 'array' ? itemsOf(String(value)) : value
  }
  return Object.fromEntries(
    fields.flatMap(([name, field]) => {
      const { [field.each ?? name]: value } = given
      return value === undefined ? [] : [[name, sentOf(field, value)]]
    }),
  )
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new FatalError(
      `"${text}" is not valid JSON. Put it in single quotes, such as '{"tagsAll":["vip"]}'.`,
    )
  }
}
