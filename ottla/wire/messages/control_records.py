"""Keys and values of control records: transaction markers, and the marks of a controller quorum's log."""

from __future__ import annotations

from ottla.wire.schema import Data, Struct, Uuid, array, i16, i32, i64, nested, string, u16, uuid


class ControlRecordTypeSchema(Data, versions=(0, 0)):
    type: int = i16()


class EndTxnMarker(Data, versions=(0, 0)):
    coordinator_epoch: int = i32()


class Voter(Struct):
    voter_id: int = i32()
    voter_directory_id: Uuid = uuid(since=1)


class LeaderChangeMessage(Data, versions=(0, 1), flexible=0):
    version: int = i16()
    leader_id: int = i32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Data, versions=(0, 0), flexible=0):
    version: int = i16()
    last_contained_log_timestamp: int = i64()


class SnapshotFooterRecord(Data, versions=(0, 0), flexible=0):
    version: int = i16()


class KRaftVersionRecord(Data, versions=(0, 0), flexible=0):
    version: int = i16()
    kraft_version: int = i16()


class Endpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = u16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = i16()
    max_supported_version: int = i16()


class VotersRecordVoter(Struct):
    voter_id: int = i32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


class VotersRecord(Data, versions=(0, 0), flexible=0):
    version: int = i16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)
