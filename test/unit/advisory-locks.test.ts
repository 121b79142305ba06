/** Advisory locks of one number block each other, even if they protect different things. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const DEFINITION = /(?:const \w*LOCK = |lock constant bigint := |pg_advisory_(?:xact_)?lock\()(\d[\d_]{5,})/g

it('every advisory lock has a number of its own', () => {
  const files = ['src', 'migrations'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.(ts|sql)$/.test(name))
      .map((name) => join(ROOT, folder, name)),
  )
  const numbers = files.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(DEFINITION)].map(([, digits = '']) =>
      Number(digits.replaceAll('_', '')),
    ),
  )
  expect(numbers.length).toBeGreaterThan(7)
  expect(numbers).toEqual([...new Set(numbers)])
})
