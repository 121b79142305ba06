/** The removal of an object with everything in it: what would be deleted, and the name to type. */
import { useState } from 'preact/hooks'
import type { ApiError } from '../api.ts'
import { fill, useLocalized } from '../texts.ts'
import { TextField } from './form.tsx'
import { type Job, JobDialog } from './job.tsx'
import { Facts } from './page.tsx'
import { Failure, Loading } from './states.tsx'

export function Removal({
  title,
  text,
  name,
  contents,
  error,
  onRemove,
  onClose,
}: {
  title: string
  text: string
  /** what the operator types */
  name: string
  /** what would be deleted; undefined until it is counted */
  contents: Array<[label: string, count: number]> | undefined
  error: ApiError | undefined
  onRemove: (typed: string) => Promise<Job | undefined>
  onClose: () => void
}) {
  const { t, number } = useLocalized()
  const [typed, setTyped] = useState('')
  return (
    <JobDialog
      title={title}
      submit={t.manage.removeSubmit}
      onSubmit={() => onRemove(typed.trim())}
      onClose={onClose}
      isComplete={typed.trim() === name.trim()}
      isDangerous
    >
      <p>{text}</p>
      {error && <Failure error={error} />}
      {contents === undefined && !error && <Loading />}
      {contents && <Facts items={contents.map(([label, count]) => [label, number(count)])} />}
      <TextField
        name="name"
        label={fill(t.manage.typeName, { name })}
        value={typed}
        onChange={setTyped}
        autocomplete="off"
      />
    </JobDialog>
  )
}
