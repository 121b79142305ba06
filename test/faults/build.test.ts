/** `npm run build` and `npm start` in a copy of the checkout. */
import { spawnSync } from 'node:child_process'
import {
  appendFileSync,
  closeSync,
  cpSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { temporaryDirectory } from '../support/process.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

function copyCheckout(): string {
  const copy = temporaryDirectory()
  const names = ['src', 'tools', 'web', 'scripts', 'package.json', 'package-lock.json']
  for (const name of [...names, 'tsconfig.json', 'tsconfig.build.json', 'dist'])
    cpSync(join(ROOT, name), join(copy, name), { recursive: true, preserveTimestamps: true })
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
  return copy
}

function buildIfPossible() {
  const args = ['scripts/build-if-possible.mjs']
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: COPY, encoding: 'utf8' })
  return { status, output: stdout + stderr }
}

const COPY = copyCheckout()
const SOURCE = join(COPY, 'src/cli/run.ts')
const BUILT = join(COPY, 'dist/src/cli/run.js')

it('builds before a start if a source is newer, and replaces whole files, so that a running command reads no unfinished one', () => {
  const content = readFileSync(BUILT, 'utf8')
  const reader = openSync(BUILT, 'r')
  appendFileSync(SOURCE, '\nexport const isChanged = true\n')
  writeFileSync(join(COPY, 'dist/src/cli/former-command.js'), '')
  expect(buildIfPossible()).toEqual({ status: 0, output: '' })
  expect(readFileSync(reader, 'utf8')).toBe(content)
  closeSync(reader)
  expect(readFileSync(BUILT, 'utf8')).toContain('isChanged')
  expect(existsSync(join(COPY, 'dist/src/cli/former-command.js'))).toBe(false)
  expect(readdirSync(COPY).filter((name) => name.startsWith('dist'))).toEqual(['dist'])
})

it('does not build before a start if no source is newer', () => {
  const { ino } = statSync(BUILT)
  expect(buildIfPossible()).toEqual({ status: 0, output: '' })
  expect(statSync(BUILT).ino).toBe(ino)
})

it('keeps the last build if a source does not compile', () => {
  const content = readFileSync(BUILT, 'utf8')
  appendFileSync(SOURCE, '\nexport const isChangedAgain: string = 1\n')
  expect(buildIfPossible()).toEqual({ status: 2, output: expect.stringContaining('run.ts') })
  expect(readFileSync(BUILT, 'utf8')).toBe(content)
  expect(readdirSync(COPY).filter((name) => name.startsWith('dist'))).toEqual(['dist'])
})
