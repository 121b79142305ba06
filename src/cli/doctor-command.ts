/** `oa-audience doctor`: problems of this installation and their fixes. */
import type { Command } from 'commander'
import { readConfig } from '../config/config.ts'
import { examineSystem } from '../operator/system-health.ts'
import { withJson } from './input.ts'
import { io, printMany } from './io.ts'

export function doctorCommand(program: Command): void {
  withJson(program.command('doctor'))
    .description(
      'check configuration, database, Redis, platform, clocks, accounts, endpoints and PUBLIC_URL; exits with 1 if one has an error',
    )
    .action(async ({ json }: { json?: boolean }) => {
      const findings = await examineSystem(readConfig(io.env))
      printMany(findings, json === true)
      if (findings.some(({ severity }) => severity === 'error')) io.exitCode = 1
    })
}
