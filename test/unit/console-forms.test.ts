/** Each form that changes stored fields sends only those that were changed. test/faults/console-forms.test.ts tries each with two operators. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { Type } from '../../src/http/typebox.ts'
import { OPERATIONS } from '../../src/operations/all.ts'
import { EDITING_FORMS } from '../support/forms.ts'

const files = ['pages', 'parts'].flatMap((folder) =>
  readdirSync(`web/${folder}`).map((name): [string, string] => [
    `${folder}/${name}`,
    readFileSync(`web/${folder}/${name}`, 'utf8'),
  ]),
)
const filesWith = (pattern: RegExp) => files.filter(([, text]) => pattern.test(text)).map(([path]) => path)

it('every operation that changes some of its fields has a form in the table', () => {
  const isPartial = (schema: object) => Type.IsOptional(schema as never) && !('default' in schema)
  const editing = OPERATIONS.filter(
    ({ hasTarget, records, input }) => hasTarget && records !== null && Object.values(input).some(isPartial),
  )
  expect(editing.length).toBeGreaterThan(4)
  for (const { name } of editing) expect(EDITING_FORMS, name).toHaveProperty([name])
})

it('every form that remembers what it was opened with is in the table', () => {
  const remembering = filesWith(/changesOf } = useFields/)
  expect(remembering.toSorted()).toEqual(Object.values(EDITING_FORMS).toSorted())
})

it.each(Object.entries(EDITING_FORMS).filter(([name]) => !name.includes(' ')))(
  '%s is sent by one form',
  (name, file) => {
    const [noun, verb] = name.split('.')
    const calls = new RegExp(`'${noun}\\.${verb}'|/api/${noun}s/\\$\\{id\\}/${verb}\``)
    expect(filesWith(calls)).toEqual([file])
  },
)
