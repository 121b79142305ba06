/** What an operator can do with all members that match a filter, not only with those of the page. */
import type { ComponentChildren } from 'preact'
import { ApiError, queryOf } from '../api.ts'
import { startJob, useRead } from '../operations.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { Dialog, DialogButton } from './dialog.tsx'
import { listOf, TextField, useFields } from './form.tsx'
import { type Job, JobDialog } from './job.tsx'
import { SaveSegment } from './segments.tsx'
import { Loaded } from './states.tsx'

/** Members: tags of more are changed only if the operator types the number. */
const TYPED_ABOVE = 1_000

interface Selection {
  account: string
  /** the filters of GET /api/accounts/:id/members */
  filters: Record<string, string>
}

export function AllMatching({ onChange, ...selection }: Selection & { onChange: () => void }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  return (
    <div class="actions all-matching">
      <span class="muted">{t.bulk.allMatching}</span>
      {isManager && (
        <DialogButton label={t.bulk.tags} onClosed={onChange}>
          {(close) => <TagDialog {...selection} onClose={close} />}
        </DialogButton>
      )}
      <DialogButton label={t.bulk.export}>
        {(close) => <ExportDialog {...selection} onClose={close} />}
      </DialogButton>
      {isManager && (
        <DialogButton label={t.bulk.erase} onClosed={onChange}>
          {(close) => <EraseDialog {...selection} onClose={close} />}
        </DialogButton>
      )}
      {isManager && !selection.filters.segment && <SaveSegment {...selection} />}
      {isManager && (
        <Link class="button" href={`/accounts/${selection.account}/import`}>
          {t.imports.title}
        </Link>
      )}
    </div>
  )
}

const useCount = ({ account, filters }: Selection) => useRead('account.count-members', account, filters)

function TagDialog(selection: Selection & { onClose: () => void }) {
  const { t } = useLocalized()
  const { values, field } = useFields({ addTags: '', removeTags: '' })
  const [addTags, removeTags] = [tagsOf(values.addTags), tagsOf(values.removeTags)]
  return (
    <ChangeDialog
      {...selection}
      title={t.bulk.tagsTitle}
      submit={(count) => fill(t.bulk.submit, { count })}
      start={(matching) =>
        startJob('account.tag-members', selection.account, { ...matching, addTags, removeTags })
      }
      isComplete={addTags.length + removeTags.length > 0}
      typedAbove={TYPED_ABOVE}
    >
      <TextField {...field('addTags')} label={t.bulk.add} hint={t.bulk.tagsHint} />
      <TextField {...field('removeTags')} label={t.bulk.remove} />
    </ChangeDialog>
  )
}

const tagsOf = (text: string): string[] => [...new Set(listOf(text))]

function EraseDialog(selection: Selection & { onClose: () => void }) {
  const { t } = useLocalized()
  return (
    <ChangeDialog
      {...selection}
      title={t.bulk.eraseTitle}
      submit={(count) => fill(t.bulk.eraseSubmit, { count })}
      start={(matching) => startJob('account.erase-members', selection.account, matching)}
    >
      <p>{t.bulk.eraseText}</p>
    </ChangeDialog>
  )
}

interface ChangeProps extends Selection {
  title: string
  /** @param count members, as the language writes numbers */
  submit: (count: string) => string
  start: (matching: { filters: Selection['filters']; expectedCount: number }) => Promise<Job | undefined>
  isComplete?: boolean
  /** above this number of members, the operator types the number */
  typedAbove?: number
  onClose: () => void
  children: ComponentChildren
}

/** Counts the members, and starts a job that changes all of them. */
function ChangeDialog(props: ChangeProps) {
  const { account, filters, title, submit, isComplete = true, typedAbove = 0, onClose } = props
  const { t, number } = useLocalized()
  const query = useCount({ account, filters })
  const { values, field } = useFields({ expectedCount: '' })
  const { count = 0 } = query.data ?? {}
  const start = async () => {
    try {
      return await props.start({ filters, expectedCount: count })
    } catch (failure) {
      if (failure instanceof ApiError && failure.status === 409) query.reload()
      throw failure
    }
  }
  const isConfirmed = count <= typedAbove || values.expectedCount.trim() === String(count)
  return (
    <JobDialog
      title={title}
      submit={submit(number(count))}
      onSubmit={start}
      onClose={onClose}
      isComplete={count > 0 && isComplete && isConfirmed}
    >
      <Loaded query={query}>
        {() => (
          <>
            <p role="status">{fill(t.bulk.matching, { count: number(count) })}</p>
            {props.children}
            {count > typedAbove && (
              <TextField
                {...field('expectedCount')}
                label={fill(t.bulk.confirm, { count: String(count) })}
                autocomplete="off"
              />
            )}
          </>
        )}
      </Loaded>
    </JobDialog>
  )
}

const FORMATS = ['csv', 'ndjson', 'line-ids'] as const

function ExportDialog({ onClose, ...selection }: Selection & { onClose: () => void }) {
  const { t, number } = useLocalized()
  const { account, filters } = selection
  const query = useCount(selection)
  const path = (format: string) =>
    `/api/accounts/${account}/audience/export${queryOf({ ...filters, format })}`
  return (
    <Dialog title={t.bulk.exportTitle} onClose={onClose}>
      <Loaded query={query}>
        {({ count }) => <p role="status">{fill(t.bulk.matching, { count: number(count) })}</p>}
      </Loaded>
      <p>{t.bulk.exportText}</p>
      <footer class="actions">
        {FORMATS.map((format) => (
          <a key={format} class="button" href={path(format)} download>
            {t.bulk.formats[format]}
          </a>
        ))}
      </footer>
    </Dialog>
  )
}
