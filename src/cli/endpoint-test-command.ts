import type { Command } from 'commander'
import { readConfig } from '../config/config.ts'
import { isOwnUrl, ownAddresses } from '../endpoints/address.ts'
import { isAccepted } from '../endpoints/post.ts'
import { EndpointTester, type TestDelivery } from '../endpoints/test-delivery.ts'
import { commandActor } from '../operator/actor.ts'
import { test } from '../operator/endpoints/manage-endpoints.ts'
import { onDatabase, parseId, withJson } from './input.ts'
import { io, print, printJson } from './io.ts'

export function testCommand(group: Command): void {
  withJson(group.command('test'))
    .description('send a test message now, apart from the queue, and print the request and the response')
    .argument('<id>', 'id of the endpoint, as `endpoints list` shows it', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const { publicUrl, host, port } = readConfig(io.env)
      const own = ownAddresses(publicUrl, host, port)
      const tester = new EndpointTester((url) => isOwnUrl(url, own))
      const result = await onDatabase((database) => test(database, commandActor(), id, tester))
      if (json) printJson(result)
      else for (const line of linesOf(result)) print(line)
      if (!isAccepted(result.response)) io.exitCode = 1
    })
}

/** As HTTP writes them. The response has no control characters: see test-delivery.ts. */
function linesOf({ request, response }: TestDelivery): string[] {
  const { status, reason, durationMs, headers, body, isCut } = response
  return [
    `POST ${request.url}`,
    ...Object.entries(request.headers).map(([name, value]) => `${name}: ${value}`),
    '',
    request.body,
    '',
    `${status ?? reason} (${durationMs} ms)`,
    ...headers.map(([name, value]) => `${name}: ${value}`),
    ...(body === '' ? [] : ['', body]),
    ...(isCut ? ['…'] : []),
  ]
}
