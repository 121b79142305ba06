/** What LINE has of a segment, in English sentences. The console has those of other languages. */

/** Why the last upload of a segment made no audience. */
export type SyncFault =
  | 'empty'
  | 'too_large'
  | 'failed'
  | 'expired'
  | 'not_available'
  | 'suspended'
  | 'credentials'
  | 'rejected'
  | 'unavailable'

export type SyncState = 'off' | 'waiting' | 'uploading' | 'processing' | 'ready' | 'deleting' | SyncFault

export const SYNC_TEXTS: Record<SyncState, string> = {
  off: 'LINE has no audience of this segment. Turn sync on to upload one each day.',
  waiting:
    'The upload to LINE waits for its turn, which is usually a matter of seconds. A service must be running.',
  uploading:
    'The upload to LINE has begun. If its response was lost, the audience is looked up by its name for an hour.',
  processing: 'LINE processes the audience, which may take hours. Wait.',
  ready: 'The audience is ready in LINE Official Account Manager.',
  deleting:
    'Sync is off, and the audiences at LINE are being deleted. If this lasts for more than an hour, check the credentials of the account.',
  empty:
    'The segment has no followers, and LINE never finishes an empty audience, so none was uploaded. Check the condition; the next try is in a day.',
  too_large:
    'The segment has more than 1,500,000 followers, which is the most that LINE takes. Divide the condition; the next try is in a day.',
  failed: 'LINE failed to process the audience. It is uploaded again in an hour.',
  expired: "LINE's audience has expired. It is uploaded again in an hour.",
  not_available:
    'LINE offers no audiences to this account: they need an account of Japan, Thailand or Taiwan. Turn sync off and use an export.',
  suspended: 'LINE has suspended the account, and refuses uploads. Ask LINE; the next try is in an hour.',
  credentials:
    'LINE refuses the credentials of the account, or none are stored. Correct them and verify the account; the next try is in an hour.',
  rejected:
    'LINE refuses the upload for the reason below. An account has at most 1,000 audiences: delete some in LINE Official Account Manager. The next try is in an hour.',
  unavailable: 'LINE does not respond. The next try is in an hour.',
}
