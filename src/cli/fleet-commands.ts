/** `oa-audience fleet`: all accounts, worst first. */

import type { Command } from 'commander'
import { listFleet } from '../operator/accounts/fleet.ts'
import { explainProblem } from '../operator/accounts/problem-commands.ts'
import { confirmStatuses } from '../operator/accounts/store-statuses.ts'
import { ALL_ORGANIZATIONS } from '../operator/actor.ts'
import { onDatabase, withJson } from './input.ts'
import { io, print, printJson, printMany, styled } from './io.ts'

export function fleetCommand(program: Command): void {
  withJson(program.command('fleet'))
    .description('list all official accounts, worst first, with what to do; exits with 1 if one is broken')
    .action(async ({ json }: { json?: boolean }) => {
      const now = Date.now()
      const accounts = await onDatabase(async (database) => {
        await confirmStatuses(database)
        return listFleet(database, ALL_ORGANIZATIONS)
      })
      const fleet = accounts.map((account) => ({
        ...account,
        problems: account.problems.map((problem) => ({
          ...problem,
          ...explainProblem(account.id, problem, now),
        })),
      }))
      if (json) printJson(fleet)
      else {
        printMany(
          fleet.map(({ id, name, status, lastDeliveryAt, deliveries24h, following, problems }) => ({
            ...{ id, name, status, lastDeliveryAt, deliveries24h, following },
            problem: problems[0]?.message ?? null,
          })),
          false,
        )
        for (const { id, name, problems } of fleet)
          for (const { message, fix } of problems)
            print(`\n${styled('bold', `${id} ${name}`)}: ${message}\n  ${fix}`)
      }
      if (fleet.some(({ status }) => status === 'broken')) io.exitCode = 1
    })
}
