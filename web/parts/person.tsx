/** A person in one account or in several: where the person is a member, export of the stored data, and erasure. */
import { useState } from 'preact/hooks'
import type { Member } from '../../src/audience/member.ts'
import type { Membership as StoredMembership } from '../../src/audience/member-details.ts'
import { type Json, queryOf } from '../api.ts'
import { perform, startJob, useRead } from '../operations.ts'
import { Link, navigate } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'
import { Dialog, DialogButton } from './dialog.tsx'
import { FormDialog, TextField } from './form.tsx'
import { Loaded } from './states.tsx'

type Membership = Json<StoredMembership>

/** The account of the page, and the other accounts of which the operator sees that the person is a member. */
export interface PersonAccounts {
  account: { id: string; name: string }
  others: Membership[]
}

/** A provider may have hundreds of accounts. */
const LINKS_MAX = 20

const pathOf = (account: string, rest: string) => `/api/accounts/${account}/people/${rest}`

export function usePersonAccounts(account: string, userId: string | null) {
  const { data, error, reload } = useRead('account.memberships', account, userId === null ? null : { userId })
  const others = data?.memberships.filter(({ accountId }) => accountId !== account) ?? []
  return { accounts: data && { account: data.account, others }, error, reload }
}

/** Links to the member pages of other accounts. */
export function Memberships({ memberships }: { memberships: Membership[] }) {
  const { t, number } = useLocalized()
  const more = memberships.length - LINKS_MAX
  return (
    <ul>
      {memberships.slice(0, LINKS_MAX).map(({ accountId, accountName, memberId }) => (
        <li key={accountId}>
          <Link href={`/accounts/${accountId}/audience/${memberId}`}>{accountName}</Link>
        </li>
      ))}
      {more > 0 && <li class="muted">{fill(t.member.moreAccounts, { count: number(more) })}</li>}
    </ul>
  )
}

/** The person need not be a member. */
export function ExportPerson(person: { account: string; userId: string }) {
  const { t } = useLocalized()
  return (
    <DialogButton label={t.exports.person}>
      {(close) => <ExportDialog {...person} onClose={close} />}
    </DialogButton>
  )
}

/** Links, because the browser shows the progress of a download. */
function ExportDialog({
  account,
  userId,
  onClose,
}: {
  account: string
  userId: string
  onClose: () => void
}) {
  const { t, number } = useLocalized()
  const { accounts, ...query } = usePersonAccounts(account, userId)
  const userQuery = queryOf({ userId })
  return (
    <Dialog title={t.exports.personTitle} onClose={onClose}>
      <p>{t.exports.personText}</p>
      <Loaded query={{ ...query, data: accounts }}>
        {(found) => (
          <div class="choices">
            <a class="button" href={pathOf(account, `export${userQuery}`)} download>
              {fill(t.exports.personFrom, { account: found.account.name })}
            </a>
            {found.others.length > 0 && (
              <>
                <a class="button" href={pathOf(account, `export-all${userQuery}`)} download>
                  {fill(t.exports.personFromAll, { count: number(found.others.length + 1) })}
                </a>
                <AllAccounts accounts={found} />
              </>
            )}
          </div>
        )}
      </Loaded>
    </Dialog>
  )
}

/** The page of a member. */
export function PersonLink({
  accountId,
  userId,
  displayName,
}: {
  accountId: string
  userId: string | null
  displayName: string | null
}) {
  if (userId === null) return <span class="muted">–</span>
  return (
    <Link href={`/accounts/${accountId}/audience/${encodeURIComponent(userId)}`} title={userId}>
      {displayName ?? userId}
    </Link>
  )
}

function AllAccounts({ accounts: { account, others } }: { accounts: PersonAccounts }) {
  const { t } = useLocalized()
  return (
    <>
      <p class="small-text">{[account.name, ...others.map(({ accountName }) => accountName)].join(', ')}</p>
      <p class="muted small-text">{t.member.scopeHelp}</p>
    </>
  )
}

interface EraseProps {
  accounts: PersonAccounts
  member: Member
  onClose: () => void
}

/** Leads to the members that remain, or to the job that erases the person from several accounts. */
export function ErasePerson({ accounts, member, onClose }: EraseProps) {
  const { t, number } = useLocalized()
  const { account, others } = accounts
  const [typed, setTyped] = useState('')
  const [isEverywhere, setEverywhere] = useState(false)
  const expected = member.displayName?.trim() || member.userId
  const count = number(others.length + 1)
  const erase = async () => {
    if (!isEverywhere) {
      await perform('account.erase-member', account.id, { member: String(member.id) })
      return navigate(`/accounts/${account.id}/audience`)
    }
    const ids = [account.id, ...others.map(({ accountId }) => accountId)]
    const person = { userId: member.userId, accounts: ids }
    const job = await startJob('account.erase-person', account.id, person)
    navigate(`/settings/jobs/${job?.id}`)
  }
  return (
    <FormDialog
      title={t.member.eraseTitle}
      submit={t.member.eraseSubmit}
      isComplete={[expected, member.userId].includes(typed.trim())}
      onClose={onClose}
      onSubmit={erase}
      isDangerous
    >
      <p>
        {fill(t.member.eraseText, {
          from: isEverywhere ? fill(t.member.theseAccounts, { count }) : account.name,
        })}
      </p>
      {others.length > 0 && (
        <fieldset class="choices">
          <legend>{t.member.scope}</legend>
          {[false, true].map((value) => (
            <label key={String(value)}>
              <input
                type="radio"
                name="scope"
                checked={isEverywhere === value}
                onChange={() => setEverywhere(value)}
              />
              <span>
                {value
                  ? fill(t.member.fromAll, { count })
                  : fill(t.member.onlyFrom, { account: account.name })}
              </span>
            </label>
          ))}
          <AllAccounts accounts={accounts} />
        </fieldset>
      )}
      <TextField
        name="confirmation"
        label={fill(t.member.eraseConfirm, { text: expected })}
        autocomplete="off"
        value={typed}
        onChange={setTyped}
      />
    </FormDialog>
  )
}
