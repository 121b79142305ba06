import { defineConfig } from 'vitest/config'
import base from './vitest.config.ts'

/** Their results do not depend on what else runs, so two files run at a time. All others measure, or take most of the machine. */
const CONCURRENT = `
  accounts-apply audience-import backup backup-dump build compose compression console-accounts console-browser
  console-browser-actions console-browser-endpoints console-browser-operators console-charts console-day
  console-markup console-notifications console-pages console-person console-search console-sso console-tasks
  database database-hosts demo embedded-database embedded-lifecycle embedded-upgrade encryption endpoints-erasure
  erasure-ledger exports failover full-disk fuzz idle-connections import-followers loss nginx notifications
  openapi-page pgbouncer plans prometheus prove replicas restore-drill retention shutdown simulate slow-platform
  soak systemd tarball tracking-browsers verify-faults workers
`
  .trim()
  .split(/\s+/)
  .map((name) => `test/faults/${name}.test.ts`)

const slow = {
  ...base.test,
  testTimeout: 300_000,
  // Otherwise `npx vitest run` of one file would show a browser the pages of the last build.
  globalSetup: ['test/support/build-console.ts', 'test/support/global-setup.ts'],
}

/** Files of `npm test` whose property tests have all their runs here. test/support/runs.ts */
const PROPERTIES = [
  ...['audience-delta', 'audience-filters', 'audience-import', 'audience-rare-filters', 'convergence'],
  ...['endpoints-erasure', 'endpoints-replay-erasure', 'event-keys', 'events-export', 'line-order'],
  ...['tenants', 'unit/line-payload', 'unit/notification-transitions'],
].map((name) => `test/${name}.test.ts`)

/** Tests that take minutes or most of the machine. */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          ...slow,
          name: 'two at a time',
          include: CONCURRENT,
          exclude: [],
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...slow,
          name: 'all runs of properties',
          include: PROPERTIES,
          env: { ALL_RUNS: 'true' },
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...slow,
          name: 'one at a time',
          include: ['test/faults/*.test.ts'],
          exclude: CONCURRENT,
          maxWorkers: 1,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
})
