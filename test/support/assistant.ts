/** An assistant's client, connected to the tools without a process in between. */
import { Client, InMemoryTransport } from '@modelcontextprotocol/client'
import { type CallerParts, createCaller } from '../../src/assistant/caller.ts'
import { createServer } from '../../src/assistant/server.ts'
import { commandServices } from '../../src/cli/operation-commands.ts'
import { commandActor, type OrganizationIds } from '../../src/operators/actor.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { atEnd } from './at-end.ts'

interface Reply {
  isError: boolean
  /** the result as JSON */
  text: string
  // biome-ignore lint/suspicious/noExplicitAny: each tool has a result of its own
  result: any
}

export async function connectAssistant(
  database: TextDatabase,
  { organizationIds = null, ...parts }: { organizationIds?: OrganizationIds } & Partial<CallerParts> = {},
) {
  const actor = { ...commandActor(), organizationIds }
  /** errors that the assistant does not see */
  const logged: string[] = []
  const caller = createCaller({
    ...{ database, actor, showPersonalData: false, examineSystem: async () => [] },
    services: commandServices(),
    logError: (text) => logged.push(text),
    ...parts,
  })
  const client = new Client({ name: 'test', version: '1' })
  const [ours, theirs] = InMemoryTransport.createLinkedPair()
  await createServer(caller, actor).connect(theirs)
  await client.connect(ours)
  atEnd(() => client.close())
  return { client, logged, call: (...call: Call) => callTool(client, ...call) }
}

type Call = [name: string, input?: Record<string, unknown>]

export async function callTool(client: Client, ...[name, input = {}]: Call): Promise<Reply> {
  const { content, structuredContent, isError = false } = await client.callTool({ name, arguments: input })
  const [first] = content
  if (first?.type !== 'text' || content.length !== 1) throw new Error('the content is not one text')
  return { isError, text: first.text, result: structuredContent }
}
