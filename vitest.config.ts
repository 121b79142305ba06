import { configDefaults, defineConfig } from 'vitest/config'

/** A condition that a test waits for. Only a failure reaches it, also beside four busy loops on two cores. */
const WAIT_MAX_MS = 20_000

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, 'test/faults/**'],
    globalSetup: 'test/support/global-setup.ts',
    // Two files at a time for two cores. Files share one PostgreSQL server but never a database.
    maxWorkers: 2,
    // Loading the service's modules takes about 1 s. No test changes the state of a module, so the files of a worker share them.
    isolate: false,
    // Longer than WAIT_MAX_MS, because a test that only times out does not say what it waited for.
    testTimeout: 90_000,
    hookTimeout: 90_000,
    // 20 failures × 20 s ÷ 2 workers = 200 s, so also a service that does nothing fails within minutes. --bail=0 shows all failures.
    bail: 20,
    // .ci/run repeats a failed test once, because its machine is shared. The report marks such a test: find its cause.
    retry: Number(process.env.TEST_RETRIES ?? 0),
    expect: { poll: { timeout: WAIT_MAX_MS, interval: 20 } },
    provide: { waitMaxMs: WAIT_MAX_MS },
  },
})
