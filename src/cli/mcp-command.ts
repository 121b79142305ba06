/** `oa-audience mcp`: read-only tools for an assistant, over standard input and output. */
import type { Readable, Writable } from 'node:stream'
import { listOrganizations } from '../accounts/organizations.ts'
import { readConfig } from '../config/config.ts'
import type { OrganizationId } from '../ids.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { examineSystem } from '../watch/system-health.ts'
import { type CliCommand, collectIds, notFound, onDatabase } from './command.ts'
import { io, printError } from './io.ts'
import { commandServices } from './operation-commands.ts'

/** Bytes of one message. Arguments have at most a few hundred characters. */
const MESSAGE_MAX_BYTES = 1024 * 1024

interface McpOptions {
  organization?: bigint[]
  showPersonalData?: boolean
}

export function mcpCommand(program: CliCommand): void {
  program
    .command('mcp')
    .description(
      'let an AI assistant read accounts, problems, deliveries and activity: a server of the Model Context Protocol on standard input and output, read-only',
    )
    .option(
      '--organization <id>',
      'only this organization; give it several times for several (default: all)',
      collectIds,
    )
    .option('--show-personal-data', 'do not mask names, tags and other text about people')
    .action((options: McpOptions) => onDatabase((database) => serveAssistant(database, options)))
}

/** Ends when the client closes the input, or with a signal. */
async function serveAssistant(database: Database, options: McpOptions): Promise<void> {
  const { organization: organizationIds = ALL_ORGANIZATIONS, showPersonalData = false } = options
  await requireOrganizations(database, organizationIds ?? [])
  // The SDK takes 0.15 s to load, and no other command needs it.
  const { serveStdio, StdioServerTransport } = await import('../assistant/sdk.ts')
  const { createCaller } = await import('../assistant/caller.ts')
  const { createServer } = await import('../assistant/server.ts')
  const config = readConfig(io.env)
  const actor = { ...commandActor(), organizationIds }
  const caller = createCaller({
    database,
    actor,
    showPersonalData,
    services: commandServices(),
    examineSystem: () => examineSystem(config),
    logError: (text) => printError(`oa-audience mcp: ${text}`),
  })
  let close = () => {}
  const closed = new Promise<void>((resolve) => {
    close = resolve
  })
  class Transport extends StdioServerTransport {
    override async close(): Promise<void> {
      await super.close()
      close()
    }
  }
  const limit = { maxBufferSize: MESSAGE_MAX_BYTES }
  const connection = serveStdio(() => createServer(caller, actor), {
    transport: new Transport(io.stdin as Readable, io.stdout as Writable, limit),
    // The error may contain the message, which may be personal.
    onerror: () => printError('oa-audience mcp: a message was not valid, or too large'),
  })
  const stop = () => void connection.close()
  process.once('SIGTERM', stop).once('SIGINT', stop)
  await closed
  process.off('SIGTERM', stop).off('SIGINT', stop)
  await caller.idle()
}

async function requireOrganizations(database: Database, ids: OrganizationId[]): Promise<void> {
  const existing = (await listOrganizations(database, ids)).map(({ id }) => id)
  const absent = ids.find((id) => !existing.includes(id))
  if (absent !== undefined) throw notFound('organization', absent)
}
