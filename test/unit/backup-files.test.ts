/** The files of a backup. */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { listTree, syncDirectory } from '../../src/upkeep/backup/files.ts'
import { temporaryDirectory } from '../support/process.ts'

it('a directory on another disk is refused instead of left out of the backup', async () => {
  const root = temporaryDirectory()
  mkdirSync(join(root, 'base'))
  writeFileSync(join(root, 'base', '1'), '')
  expect(await listTree(root)).toEqual({ directories: ['base'], files: ['base/1'] })
  symlinkSync(temporaryDirectory(), join(root, 'pg_wal'))
  await expect(listTree(root)).rejects.toThrow(`${join(root, 'pg_wal')} is a symbolic link`)
  expect((await listTree(root, (path) => path !== 'pg_wal')).files).toEqual(['base/1'])
})

it('a backup may be in a directory that is a symbolic link, as /tmp is on macOS', async () => {
  const link = join(temporaryDirectory(), 'link')
  symlinkSync(temporaryDirectory(), link)
  await syncDirectory(link)
})
