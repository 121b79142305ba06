import { defineConfig } from 'vitest/config'
import base from './vitest.config.ts'

/** Tests that need minutes, or most of the machine: one at a time. */
export default defineConfig({
  test: {
    ...base.test,
    include: ['test/faults/*.test.ts'],
    exclude: [],
    maxWorkers: 1,
    testTimeout: 180_000,
  },
})
