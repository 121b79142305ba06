/** The fields of an official account as options, which `accounts add`, `accounts update` and `setup` share. */
import { secretWarning } from '../accounts/account-fields.ts'
import { UNPROVEN } from '../accounts/channels.ts'
import { type Config, readConfig } from '../config/config.ts'
import { localUrl } from '../http/listen.ts'
import { LineApi } from '../line-api/client.ts'
import { ACCOUNTS } from '../operations/accounts.ts'
import type { Operation } from '../operations/operation.ts'
import type { Database } from '../postgres/database.ts'
import type { CliCommand } from './command.ts'
import { io, printError } from './io.ts'
import { inputOf, optionsOf, performHere } from './operation-commands.ts'

const SECRETS_HELP = `
A secret given as - is read from standard input, so that it does not appear in the list of processes.
Several secrets are read one line each, in the order of the options:
  printf '%s\\n' "$SECRET" "$TOKEN" | oa-audience accounts update 1 --channel-secret - --channel-access-token -`

export function withFields(command: CliCommand, operation: Operation = ACCOUNTS.update): CliCommand {
  for (const option of optionsOf(operation)) command.addOption(option)
  return command
    .option('--unproven', 'store channel id and secret without asking LINE whether they belong together')
    .addHelpText('after', SECRETS_HELP)
}

export type Proving = { unproven?: boolean }

/** Null with `--unproven`. */
export const proverOf = ({ unproven }: Proving): LineApi | null =>
  unproven ? null : new LineApi(readConfig(io.env).lineApiUrl)

/** Adds or changes an account. Returns the names of the fields that options give. */
export async function setFields<R extends { isUnproven?: boolean }>(
  database: Database,
  operation: Operation<R>,
  given: Record<string, unknown> & Proving,
  id: bigint | null = null,
) {
  const input = await inputOf(operation, given)
  warnAboutSecret(input)
  const services = { lineApi: proverOf(given), baseUrl: baseUrlOf(readConfig(io.env)) }
  const checked = operation.check(input)
  const { result } = await performHere(database, operation, { id, input: checked }, services)
  warnIfUnproven(result?.isUnproven)
  return { result: result as R, fields: Object.keys(input) }
}

export function warnAboutSecret({ channelSecret }: { channelSecret?: string | null }): void {
  const warning = secretWarning(channelSecret?.trim())
  if (warning !== null) printError(`oa-audience: warning: ${warning}`)
}

/** Printed after the change, so that it is the last line. */
export function warnIfUnproven(isUnproven = false): void {
  if (isUnproven) printError(`oa-audience: warning: ${UNPROVEN}`)
}

/** Returns PUBLIC_URL, or else the URL at which the service listens. */
export function baseUrlOf({ publicUrl, host, port }: Pick<Config, 'publicUrl' | 'host' | 'port'>): string {
  return publicUrl ?? localUrl(host, port)
}
